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
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from snnet_mm.utils import atomic_path, read_json

STATE = 'state.json'
WRITER = 'an interrupted test; started anew without --resume, it'

Identity = Mapping[str, str | int]
Metrics = dict[int, dict[str, float]]


class PartialEvaluation:
    """Metrics of finished stitches on disk, and a folder for the buffers of others.

    Args:
        root: Folder of all partial evaluations of a work directory. Each has a
            folder of its own, named after its identity.
        identity: What must not change; see :func:`identify`, :func:`identify_data`.
        resume: Whether to take up what an interrupted evaluation left.
    """

    def __init__(self, root: Path, identity: Identity, resume: bool) -> None:
        self.identity, self.finished = dict(identity), {}
        self.folder = root / _digest([json.dumps(self.identity)])
        if resume and not self.folder.exists():
            _refuse_others(root, identity)
        barrier()
        if is_main_process() and not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        barrier()
        if (self.folder / STATE).exists():
            _, self.finished = _read(self.folder / STATE)
        self.finish({})

    def finish(self, metrics: Mapping[int, Mapping[str, float]]) -> None:
        """Keep the metrics of stitches that are through."""
        for stitch_id, values in metrics.items():
            # Metrics come as numpy scalars too, which JSON does not know.
            self.finished[stitch_id] = {k: float(v) for k, v in values.items()}
        if is_main_process():
            state = dict(identity=self.identity, finished=self.finished)
            with atomic_path(self.folder / STATE) as temporary:
                temporary.write_text(json.dumps(state, indent=1))

    def remove(self) -> None:
        """Forget all of it: the evaluation is complete."""
        barrier()
        if is_main_process():
            shutil.rmtree(self.folder)
            with suppress(OSError):  # not empty: there are others
                self.folder.parent.rmdir()


def identify(runner: Runner) -> dict[str, str | int]:
    """Return what the results of a test depend on, by the names users know."""
    cfg = runner.cfg
    data = cfg.get('test_dataloader', {}).get('dataset')
    parts = cfg.get('model'), data, cfg.get('test_evaluator')
    return {
        'config': _digest(map(repr, parts)),
        'checkpoint': _digest(_tensor_bytes(runner.model.state_dict())),
        'number of processes': get_world_size(),
    }


def identify_data(dataloader: DataLoader) -> dict[str, str | int]:
    """Return which images a test sees, and how they are grouped."""
    return {
        'data set': _digest(_image_names(dataloader.dataset)),
        'number of images': len(dataloader.dataset),
        'batch size': dataloader.batch_size,
    }


def _read(path: Path) -> tuple[dict[str, str | int], Metrics]:
    def parse(data: Mapping) -> tuple[dict[str, str | int], Metrics]:
        finished = {
            int(i): {str(name): float(value) for name, value in metrics.items()}
            for i, metrics in data['finished'].items()
        }
        return dict(data['identity']), finished

    return read_json(path, parse, 'state of a test', WRITER)


def _refuse_others(root: Path, identity: Identity) -> None:
    others = sorted(root.glob(f'*/{STATE}'), key=lambda p: p.stat().st_mtime)
    if not others:
        return
    other, _ = _read(others[-1])
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


def _tensor_bytes(state: Mapping[str, object]) -> Iterable[str | memoryview]:
    for name, value in state.items():
        yield name
        if isinstance(value, Tensor):
            flat = value.detach().cpu().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy()


def _image_names(dataset: Dataset) -> Iterable[str]:
    for i in range(len(dataset)):
        # The base class's, because others may load or paint the image.
        known = isinstance(dataset, BaseDataset)
        info = BaseDataset.get_data_info(dataset, i) if known else {}
        yield f'{info.get("img_path", i)}\n'
