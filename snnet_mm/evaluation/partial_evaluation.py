"""The folder of an evaluation that is under way, which a resumed one takes up."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import barrier, get_world_size, is_main_process
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from snnet_mm.utils import atomic_path, read_json

IDENTITY, FINISHED = 'identity.json', 'finished.json'
WRITER = 'an interrupted test; started anew without --resume, it'


class PartialEvaluation:
    """Finished stitches and the collected results of the others, on disk.

    Args:
        root: Folder of all partial evaluations of a work directory. Each has a
            folder of its own, named after its identity.
        identity: What must not change, by name; see :func:`identify` and
            :func:`identify_data`.
        resume: Whether to take up what an interrupted evaluation left.

    Raises:
        ValueError: If there are only evaluations of another identity to resume.
    """

    def __init__(
        self, root: Path, identity: Mapping[str, str | int], resume: bool
    ) -> None:
        text = json.dumps(identity, indent=1)
        self.folder = root / _digest([text])
        if resume and not self.folder.exists():
            _refuse_others(root, identity)
        barrier()
        if is_main_process():
            if not resume:
                shutil.rmtree(self.folder, ignore_errors=True)
            with atomic_path(self.folder / IDENTITY) as temporary:
                temporary.write_text(text)
        barrier()
        self.finished: dict[int, dict[str, float]] = {}
        path = self.folder / FINISHED
        if path.exists():
            self.finished = read_json(path, _parse_finished, 'list', WRITER)

    def finish(self, metrics: Mapping[int, Mapping[str, float]]) -> None:
        """Keep the metrics of stitches that are through."""
        for stitch_id, values in metrics.items():
            # Metrics come as numpy scalars too, which JSON does not know.
            self.finished[stitch_id] = {k: float(v) for k, v in values.items()}
        if is_main_process():
            with atomic_path(self.folder / FINISHED) as temporary:
                temporary.write_text(json.dumps(self.finished))

    def remove(self) -> None:
        """Forget all of it: the evaluation is complete."""
        barrier()
        if is_main_process():
            shutil.rmtree(self.folder)
            with suppress(OSError):  # not empty: there are others
                self.folder.parent.rmdir()


def identify(runner: Runner) -> dict[str, str | int]:
    """What the results of a test depend on, by the name users know it by."""
    parts = (
        runner.cfg.get('model'),
        runner.cfg.get('test_dataloader', {}).get('dataset'),
        runner.cfg.get('test_evaluator'),
    )
    return {
        'config': _digest(map(repr, parts)),
        'checkpoint': _digest(_tensor_bytes(runner.model)),
        'number of processes': get_world_size(),
    }


def identify_data(dataloader: DataLoader) -> dict[str, str | int]:
    """The images that a test sees, and how they are grouped."""
    return {
        'data set': _digest(_image_names(dataloader.dataset)),
        'number of images': len(dataloader.dataset),
        'batch size': dataloader.batch_size,
    }


def _parse_finished(data: Mapping) -> dict[int, dict[str, float]]:
    return {
        int(i): {str(name): float(value) for name, value in metrics.items()}
        for i, metrics in data.items()
    }


def _refuse_others(root: Path, identity: Mapping[str, str | int]) -> None:
    others = sorted(root.glob(f'*/{IDENTITY}'), key=lambda p: p.stat().st_mtime)
    if not others:
        return
    other = read_json(others[-1], dict, 'file of identity', WRITER)
    differs = [name for name in identity if other.get(name) != identity[name]]
    raise ValueError(
        f'the interrupted evaluation in {others[-1].parent} cannot be resumed, because '
        f'of another {", ".join(differs)}; resume it with what it was started with, or '
        'start anew without --resume (config key: test_cfg.resume)'
    )


def _digest(parts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]


def _tensor_bytes(model: nn.Module) -> Iterable[str | memoryview]:
    for name, value in model.state_dict().items():
        yield name
        if isinstance(value, Tensor):
            yield (
                value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            )


def _image_names(dataset: Dataset) -> Iterable[str]:
    for i in range(len(dataset)):
        # The base class's, because others may load or paint the image.
        known = isinstance(dataset, BaseDataset)
        info = BaseDataset.get_data_info(dataset, i) if known else {}
        yield f'{info.get("img_path", i)}\n'
