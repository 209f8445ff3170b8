"""Results of an evaluation that is under way, on disk for one that is resumed."""

import hashlib
import io
import json
import os
import pickle
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from numbers import Real
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.dist import (
    all_gather_object,
    barrier,
    get_rank,
    get_world_size,
    is_main_process,
)
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from snnet_mm.utils import check, quiet_terminal, read_json, write_json
from snnet_mm.utils.checkpoint import plain_globals

from .extensions import EMPTY_METRICS, rule_for
from .image_scores import image_scores, recorded_results

# In front of every record: its length in bytes, its check sum, the batches seen so far.
HEADER = struct.Struct('<QIQ')
STATE = 'state.json'

Identity = dict[str, str | int]
Metrics = dict[int, dict[str, float]]


class MetricBuffers:
    """The results that metrics keep per image, one set for each of several stitches.

    mmengine's metrics collect in ``metric.results`` and compute at the end. The lists
    are exchanged whenever another stitch is evaluated, so that one evaluator, with its
    data set's annotations, serves all.

    With a folder, every ``interval`` batches what was collected moves to the end of a
    file per stitch and rank: memory stays bounded, and an interrupted evaluation goes
    on from there. Files hold tensors, arrays and plain containers, and nothing in them
    can run; what a metric collects besides these stays in memory.

    Args:
        evaluator: The evaluator.
        ids: Stitches that are evaluated together.
        folder: Folder for the results; None keeps them in memory.
        interval: Number of batches between two writes.
        metric: The ranking metric, whose per-image statistics go to the folder.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        ids: Sequence[int],
        folder: Path | None = None,
        interval: int = 10,
        metric: str | None = None,
    ) -> None:
        self.evaluator, self.ids, self.metric = evaluator, tuple(ids), metric
        self.interval, self.num_batches = interval, 0
        for kind in map(type, evaluator.metrics):
            own = kind.evaluate is BaseMetric.evaluate
            allowed = 'metrics that collect results themselves, not in others'
            check(own, 'test_evaluator', kind.__name__, allowed)
        self._collected = {i: self._empty() for i in self.ids}
        self._folder, self._writes = folder, folder is not None
        self._files: dict[int, Path] = {}
        if folder is not None:
            of_rank = folder / f'rank{get_rank()}'
            of_rank.mkdir(parents=True, exist_ok=True)
            self._files = {i: of_rank / f'stitch_{i}.results' for i in self.ids}
            self._take_up()

    @contextmanager
    def of(self, stitch_id: int) -> Iterator[None]:
        """Let the metrics of the evaluator collect for a stitch."""
        metrics = self.evaluator.metrics
        for metric, buffer in zip(metrics, self._collected[stitch_id], strict=True):
            metric.results = buffer
        try:
            yield
        finally:
            for metric in metrics:
                metric.results = []

    def end_batch(self) -> None:
        """Count a batch that every stitch has seen."""
        self.num_batches += 1
        if self._writes and self.num_batches % self.interval == 0:
            self._write()

    def evaluate(self, stitch_id: int, num_images: int) -> dict[str, float]:
        """Compute the metrics of one stitch over the images that all ranks saw."""
        records = _records(self._files[stitch_id]) if self._files else ()
        chunks = [_decode(record) for _, _, record in records]
        chunks.append(self._collected[stitch_id])
        self._collected[stitch_id] = [[*chain(*x)] for x in zip(*chunks, strict=True)]
        of_all = self.evaluator.metrics
        with self.of(stitch_id), recorded_results(of_all) as results:
            metrics = self.evaluator.evaluate(num_images)
        scores = image_scores(stitch_id, of_all, results, metrics, self.metric)
        if scores is not None and self._folder is not None:
            scores.save(image_scores_file(self._folder, stitch_id))
        for metric in of_all:
            if values := rule_for(metric, EMPTY_METRICS):
                metrics = values(metric) | metrics
        self._collected[stitch_id] = self._empty()
        return metrics

    def _empty(self) -> list[list]:
        return [[] for _ in self.evaluator.metrics]

    def _write(self) -> None:
        """Move what was collected to the files, as one record each."""
        for stitch_id, path in self._files.items():
            try:
                record = _encode(self._collected[stitch_id])
            except (AttributeError, TypeError, pickle.PickleError):
                self._writes = False
                names = ', '.join(type(m).__name__ for m in self.evaluator.metrics)
                MMLogger.get_current_instance().warning(
                    f'{names}: results that are no plain data are kept in memory; this '
                    'test can be resumed from its last whole pass over the data only'
                )
                return
            header = HEADER.pack(len(record), zlib.crc32(record), self.num_batches)
            with path.open('ab') as file:
                file.write(header + record)
            self._collected[stitch_id] = self._empty()

    def _take_up(self) -> None:
        """Cut all files, on all ranks, to the records that all of them have."""
        records = {}
        for stitch_id, path in self._files.items():
            path.touch()
            # Bytes and batches up to the end of every record.
            records[stitch_id] = [(0, 0), *((e, n) for e, n, _ in _records(path))]
        complete = min(all_gather_object(min(map(len, records.values())) - 1))
        for stitch_id, path in self._files.items():
            end, self.num_batches = records[stitch_id][complete]
            os.truncate(path, end)


def compute_metrics(runner: Runner, buffers: MetricBuffers, num_images: int) -> Metrics:
    """Compute metrics of every stitch; tables of classes go to the log file only."""
    metrics = {stitch_id: {} for stitch_id in buffers.ids}
    for stitch_id in buffers.ids:
        with quiet_terminal(runner.logger):
            runner.logger.info(f'stitch {stitch_id}:')
            for name, value in buffers.evaluate(stitch_id, num_images).items():
                if isinstance(value, Real) or getattr(value, 'ndim', None) == 0:
                    metrics[stitch_id][name] = float(value)
                else:  # such as a confusion matrix
                    runner.logger.info(f'{name}: {value}')
    return metrics


def image_scores_file(folder: Path, stitch_id: int) -> Path:
    """Return where the per-image statistics of a stitch are kept."""
    return folder / f'images_{stitch_id}.npz'


def _encode(results: list[list]) -> bytes:
    """Return results as bytes; what :func:`_decode` refuses is no plain data."""
    buffer = io.BytesIO()
    torch.save(results, buffer)
    _decode(buffer.getvalue())
    return buffer.getvalue()


def _decode(record: bytes) -> list[list]:
    with torch.serialization.safe_globals(plain_globals()):
        return torch.load(io.BytesIO(record), weights_only=True)


def _records(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the whole records of a file: where they end, batches so far, and bytes."""
    size = path.stat().st_size
    with path.open('rb') as file:
        while len(header := file.read(HEADER.size)) == HEADER.size:
            length, check_sum, num_batches = HEADER.unpack(header)
            record = file.read(min(length, size))
            if len(record) < length or zlib.crc32(record) != check_sum:
                return  # what a crash left of it
            yield file.tell(), num_batches, record


class PartialEvaluation:
    """Metrics of finished stitches on disk, and a folder for the buffers of others.

    Args:
        root: Folder of all partial evaluations of a work directory. Each has a
            folder of its own, named after its identity.
        identity: What must not change; see :func:`identify`, :func:`identify_data`.
        resume: Whether to take up what an interrupted evaluation left.
        first: Whether it is the first of a test: others may not have been begun.
    """

    def __init__(
        self, root: Path, identity: Identity, resume: bool, first: bool = True
    ) -> None:
        self.identity, self.finished = identity, {}
        self.folder = root / _digest([json.dumps(identity)])
        if resume and first and not self.folder.exists():
            _refuse_others(root, identity)
        if is_main_process() and not resume:
            shutil.rmtree(self.folder, ignore_errors=True)
        barrier()  # all ranks have looked for it
        if (self.folder / STATE).exists():
            _, self.finished = _read_state(self.folder / STATE)
        self.finish({})

    def finish(self, metrics: Metrics) -> None:
        """Keep the metrics of stitches that are through."""
        self.finished |= metrics
        if is_main_process():
            state = dict(identity=self.identity, finished=self.finished)
            write_json(self.folder / STATE, state)

    def remove(self) -> None:
        """Forget all of it: the evaluation is complete."""
        barrier()
        if is_main_process():
            shutil.rmtree(self.folder)
            with suppress(OSError):  # not empty: there are others
                self.folder.parent.rmdir()


def identify(runner: Runner) -> Identity:
    """Return what the results of a test depend on, by the names users know."""
    cfg = runner.cfg
    data = cfg.get('test_dataloader', {}).get('dataset')
    parts = cfg.get('model'), data, cfg.get('test_evaluator')
    state = runner.model.state_dict().items()
    tensors = ((name, t.detach().cpu()) for name, t in state if isinstance(t, Tensor))
    weights = ((k, t.reshape(-1).view(torch.uint8).numpy()) for k, t in tensors)
    return {
        'config': _digest(map(repr, parts)),
        'checkpoint': _digest(chain.from_iterable(weights)),
        'number of processes': get_world_size(),
    }


def identify_data(dataloader: DataLoader) -> Identity:
    """Return which images a test sees, and how they are grouped."""
    dataset = dataloader.dataset
    names = [len(dataset)]
    if isinstance(dataset, BaseDataset):  # whose subclasses may load or paint the image
        infos = (BaseDataset.get_data_info(dataset, i) for i in range(len(dataset)))
        names = [info.get('img_path') for info in infos]
    return {'data set': _digest(map(repr, names)), 'batch size': dataloader.batch_size}


def _read_state(path: Path) -> tuple[Identity, Metrics]:
    def parse(data: Mapping) -> tuple[Identity, Metrics]:
        finished = {int(i): dict(found) for i, found in data['finished'].items()}
        return dict(data['identity']), finished

    writer = 'an interrupted test; started anew without --resume, it'
    return read_json(path, parse, 'state of a test', writer)


def _refuse_others(root: Path, identity: Identity) -> None:
    others = sorted(root.glob(f'*/{STATE}'), key=lambda p: p.stat().st_mtime)
    if not others:
        return
    other, _ = _read_state(others[-1])
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
