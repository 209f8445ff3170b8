"""Results that metrics collect per image: a buffer for each stitch, safe on disk."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch
from mmengine.dist import all_gather_object, get_rank
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger

from snnet_mm.utils.checkpoint import plain_globals

# In front of every record: its length in bytes, its check sum, the batches seen so far.
HEADER = struct.Struct('<QIQ')


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
    """

    def __init__(
        self,
        evaluator: Evaluator,
        ids: Sequence[int],
        folder: Path | None = None,
        interval: int = 10,
    ) -> None:
        self.evaluator, self.ids, self.interval = evaluator, tuple(ids), interval
        self._collected = {i: self._empty() for i in self.ids}
        self._files = {}
        if folder is not None:
            folder = folder / f'rank{get_rank()}'
            folder.mkdir(parents=True, exist_ok=True)
            self._files = {i: folder / f'stitch_{i}.results' for i in self.ids}
        self._writes = bool(self._files)
        self.num_batches = self._written = self._take_up() if self._files else 0

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
        if self._writes and self.num_batches - self._written >= self.interval:
            self._write()

    def evaluate(self, stitch_id: int, num_images: int) -> dict[str, float]:
        """Compute the metrics of one stitch over the images that all ranks saw."""
        records = _records(self._files[stitch_id]) if self._files else ()
        chunks = [_decode(record) for _, _, record in records]
        chunks.append(self._collected[stitch_id])
        self._collected[stitch_id] = [
            list(chain(*parts)) for parts in zip(*chunks, strict=True)
        ]
        with self.of(stitch_id):
            metrics = self.evaluator.evaluate(num_images)
        self._collected[stitch_id] = self._empty()
        return metrics

    def _empty(self) -> list[list]:
        return [[] for _ in self.evaluator.metrics]

    def _write(self) -> None:
        """Move what was collected to the files, as one record each."""
        for stitch_id, path in self._files.items():
            record = _encode(self._collected[stitch_id])
            if record is None:
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
        self._written = self.num_batches

    def _take_up(self) -> int:
        """Cut all files, on all ranks, to the records of all; the batches in them."""
        records = {}
        for stitch_id, path in self._files.items():
            path.touch()
            # Bytes and batches up to the end of every record.
            records[stitch_id] = [(0, 0), *((e, n) for e, n, _ in _records(path))]
        complete = min(all_gather_object(min(map(len, records.values())) - 1))
        for stitch_id, path in self._files.items():
            end, num_batches = records[stitch_id][complete]
            os.truncate(path, end)
        return num_batches


def _encode(results: list[list]) -> bytes | None:
    """Return results as bytes, or None if they are no plain data."""
    buffer = io.BytesIO()
    try:
        torch.save(results, buffer)
        _decode(buffer.getvalue())
    except (AttributeError, TypeError, pickle.PickleError):
        return None
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
