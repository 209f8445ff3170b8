"""Formats and options of exports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from snnet_mm.runtime.bundle import open_onnx
from snnet_mm.stitching import Selection
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import check, is_number, is_whole

from .graph import StitchBuild
from .onnx_files import write_onnx
from .single import load_checkpoint, save_single

PRECISIONS = ('fp32', 'fp16', 'int8')
ONNX_PACKAGES = 'onnx', 'onnxruntime', 'onnxscript'  # of the extra ``onnx``
# Predicts images (B, 3, H, W), in the layout that the manifest specifies for graphs.
Run = Callable[[Tensor], Predictions]


@dataclass(frozen=True)
class Format:
    """A format of exported stitches.

    Graphs are for one size of images and share weights in a bundle. Other files are
    checkpoints in the precision of the training.
    """

    suffix: str
    write: Callable[[StitchBuild, Path, str], None]  # in a precision
    load: Callable[[Path], Run]
    tolerance: float  # of predictions in fp32, relative to the largest if above 1
    is_graph: bool


def _load_onnx(path: Path) -> Run:
    """Open a graph on the CPU, with as many threads as torch uses."""
    run = open_onnx(path, torch.get_num_threads())

    def predict(images: Tensor) -> Predictions:
        outputs = tuple(map(torch.from_numpy, run(images.numpy())))
        return outputs[0] if len(outputs) == 1 else outputs

    return predict


FORMATS = {
    'mm': Format(
        '.pth',
        lambda build, path, _: save_single(build.cfg, build.model, path),
        load_checkpoint,
        tolerance=1e-5,
        is_graph=False,
    ),
    'onnx': Format('.onnx', write_onnx, _load_onnx, tolerance=1e-4, is_graph=True),
}


@dataclass(frozen=True)
class ExportRequest:
    """Stitches to export, with formats, precisions and verification.

    Args:
        stitches: The stitches.
        formats: Keys of :data:`FORMATS`. Default: ``'mm'``.
        precisions: Some of :data:`PRECISIONS`, for every format. Default: ``'fp32'``.
        bundle: Whether the graphs share one file of weights. Default: False.
        verify_on: Data to evaluate files on, ``'val'`` or ``'test'``. Default: None,
            which skips the evaluation.
        limit: Number of images to evaluate on, evenly spread. Default: all.
        tolerance: Largest allowed loss; see :func:`lost_points`. Default: 0.5.
    """

    stitches: Selection
    formats: Sequence[str] = ('mm',)
    precisions: Sequence[str] = ('fp32',)
    bundle: bool = False
    verify_on: str | None = None
    limit: int | None = None
    tolerance: float = 0.5

    def __post_init__(self) -> None:
        modes = None, 'val', 'test'
        check(self.verify_on in modes, '--verify-on', self.verify_on, modes)
        right = self.limit is None or is_whole(self.limit, 1)
        check(right, '--limit', self.limit, 'a whole number from 1')
        right = is_number(self.tolerance) and self.tolerance >= 0
        check(right, '--tolerance', self.tolerance, 'a number from 0')
        known = self.formats and {*self.formats} <= {*FORMATS}
        check(known, '--format', tuple(self.formats), FORMATS)
        known = self.precisions and {*self.precisions} <= {*PRECISIONS}
        check(known, '--precision', tuple(self.precisions), PRECISIONS)
        other = [name for name in self.precisions if name != 'fp32']
        expected = 'fp32 for mm, which casts checkpoints when they run (--amp)'
        check('mm' not in self.formats or not other, '--precision', other, expected)
        missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
        expected = f"mm, or pip install -e '.[onnx]' for {', '.join(missing)}"
        right = 'onnx' not in self.formats or not missing
        check(right, '--format', 'onnx', expected)


@dataclass(eq=False)
class Written:
    """A written file, the predictions of its stitch, and its metrics if evaluated."""

    format: str
    precision: str
    path: Path
    wanted: Predictions
    verified: dict | None = None

    def open(self) -> Run:
        return FORMATS[self.format].load(self.path)
