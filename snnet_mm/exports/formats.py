"""Formats and options of exports, and one loader for files of all formats."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from snnet_mm.runtime import read_manifest
from snnet_mm.runtime.bundle import OPENERS, check_whole
from snnet_mm.stitching import Selection
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import check, is_number, is_whole

from .graph import StitchBuild
from .onnx_files import write_onnx
from .openvino_files import write_openvino
from .single import load_checkpoint, save_single

PRECISIONS = ('fp32', 'int8')
# Predicts images (B, 3, H, W), in the layout that the manifest specifies for graphs.
Run = Callable[[Tensor], Predictions]


@dataclass(frozen=True)
class Format:
    """A format of exported stitches.

    Args:
        suffix: Suffix of its files.
        write: Writer, called with a build, the path and the precision.
        load: Opens a file, with the ``options`` of its runtime.
        packages: Packages required, of the extra of this package with the format's
            name. Default: none.
        options: Options of its runtime.
        is_graph: Whether files are graphs for one size of images. Checkpoints are not,
            and have the precision of the training. Default: True.
        shares_weights: Whether files of a bundle share weights. Default: False.
        weights_suffix: Suffix of a second file with the weights. Default: none.
        tolerance: Largest difference of predictions in fp32, relative to the largest
            prediction if this exceeds 1. Default: 1e-4.
    """

    suffix: str
    write: Callable[[StitchBuild, Path, str], None]
    load: Callable[[Path, Mapping], Run]
    packages: tuple[str, ...] = ()
    options: Mapping = field(default_factory=dict)
    is_graph: bool = True
    shares_weights: bool = False
    weights_suffix: str = ''
    tolerance: float = 1e-4


def _load_graph(opener: Callable, path: Path, options: Mapping) -> Run:
    """Open a graph on the CPU, with as many threads as torch uses."""
    run = opener(path, torch.get_num_threads(), options)

    def predict(images: Tensor) -> Predictions:
        outputs = tuple(map(torch.from_numpy, run(images.numpy())))
        return outputs[0] if len(outputs) == 1 else outputs

    return predict


_ONNX_PACKAGES = ('onnx', 'onnxruntime', 'onnxscript')
FORMATS = {
    'mm': Format(
        '.pth',
        lambda build, path, _: save_single(build.cfg, build.model, path),
        load_checkpoint,
        is_graph=False,
        tolerance=1e-5,
    ),
    'onnx': Format(
        '.onnx',
        write_onnx,
        partial(_load_graph, OPENERS['onnx']),
        packages=_ONNX_PACKAGES,
        shares_weights=True,
    ),
    # int8 weights are scaled by the activations of their stitch: none are shared.
    'openvino': Format(
        '.xml',
        write_openvino,
        partial(_load_graph, OPENERS['openvino']),
        packages=(*_ONNX_PACKAGES, 'openvino'),
        weights_suffix='.bin',
        tolerance=1e-3,
        # By default, OpenVINO computes in bf16 on CPUs that support it.
        options={'INFERENCE_PRECISION_HINT': 'f32'},
    ),
}


@dataclass(frozen=True)
class ExportRequest:
    """Stitches to export, with formats, precisions and verification.

    Args:
        stitches: The stitches.
        formats: Keys of :data:`FORMATS`. Default: ``'mm'``.
        precisions: Some of :data:`PRECISIONS`, for every format. Default: ``'fp32'``.
        bundle: Whether all stitches share weights, in formats that support it.
            Default: False.
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
        for name in self.formats:
            format = FORMATS[name]
            others = [p for p in self.precisions if p != 'fp32']
            allowed = f'fp32 for {name}: mm casts checkpoints when they run (--amp)'
            right = format.is_graph or not others
            check(right, '--precision', ', '.join(others), allowed)
            missing = [n for n in format.packages if find_spec(n) is None]
            allowed = f"an installed one: pip install -e '.[{name}]' for "
            check(not missing, '--format', name, allowed + ', '.join(missing))


@dataclass(eq=False)
class Written:
    """A written file, the predictions of its stitch, and its metrics if evaluated."""

    format: str
    precision: str
    path: Path
    wanted: Predictions
    verified: dict | None = None

    def paths(self) -> list[Path]:
        """Return the file and, for some formats, the second file with its weights."""
        suffix = FORMATS[self.format].weights_suffix
        return [self.path, self.path.with_suffix(suffix)] if suffix else [self.path]

    def open(self) -> Run:
        """Open the file in its runtime."""
        format = FORMATS[self.format]
        return format.load(self.path, format.options)


def load_export(path: str | os.PathLike) -> Run:
    """Open an exported file of any format, after a check of its digest."""
    path = Path(path)
    stitches = read_manifest(path.parent)['stitches']
    files = {f['name']: f for stitch in stitches for f in stitch['files']}
    check(path.name in files, '--out', path.name, files)
    file = files[path.name]
    check_whole(path.parent, file)
    return FORMATS[file['format']].load(path, file['options'])
