"""What an evaluator's metrics collect, apart for each stitch and safe on disk."""

from __future__ import annotations

import os
import pickle
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mmengine.dist import all_gather_object, get_rank
from mmengine.evaluator import Evaluator

# In front of every record: its length in bytes and its check sum.
HEADER = struct.Struct('<QI')


class MetricResults:
    """The results that metrics keep per image, one set for each of several stitches.

    mmengine's metrics collect in ``metric.results`` and compute at the end. The lists
    are exchanged whenever another stitch is evaluated, so that one evaluator, with its
    data set's annotations, serves all.

    With a folder, every ``interval`` batches what was collected moves to the end of a
    file per stitch and rank: memory stays bounded, and an interrupted evaluation goes
    on from there.

    Args:
        evaluator: The evaluator.
        ids: Stitches that are evaluated together.
        folder: Where results go; None keeps them in memory.
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
            self._files = {i: folder / f'stitch_{i}.pkl' for i in self.ids}
        self._pending = 0
        self.num_batches = self._take_up() if self._files else 0

    @contextmanager
    def of(self, stitch_id: int) -> Iterator[None]:
        """Inside, the metrics of the evaluator collect for this stitch."""
        for metric, collected in zip(
            self.evaluator.metrics, self._collected[stitch_id], strict=True
        ):
            metric.results = collected
        try:
            yield
        finally:
            for metric in self.evaluator.metrics:
                metric.results = []

    def end_batch(self) -> None:
        """Every stitch has seen another batch."""
        self.num_batches += 1
        self._pending += 1
        if self._pending == self.interval:
            self._write()

    def score(self, stitch_id: int, num_images: int) -> dict[str, float]:
        """Metrics of one stitch over everything that it saw.

        Args:
            stitch_id: One of the stitches.
            num_images: Size of the data set, over all ranks.
        """
        if self._files:
            if self._pending:
                self._write()
            for _, _, written in _records(self._files[stitch_id]):
                for collected, more in zip(
                    self._collected[stitch_id], written, strict=True
                ):
                    collected += more
        with self.of(stitch_id):
            metrics = self.evaluator.evaluate(num_images)
        self._collected[stitch_id] = self._empty()
        return metrics

    def _empty(self) -> list[list]:
        return [[] for _ in self.evaluator.metrics]

    def _write(self) -> None:
        """Move what was collected to the files, as one record each."""
        if self._files:
            for stitch_id, path in self._files.items():
                record = pickle.dumps((self._pending, self._collected[stitch_id]))
                with path.open('ab') as file:
                    file.write(HEADER.pack(len(record), zlib.crc32(record)) + record)
                self._collected[stitch_id] = self._empty()
        self._pending = 0

    def _take_up(self) -> int:
        """Cut all files, on all ranks, to the records that every one of them has.

        Returns:
            The number of batches in them.
        """
        ends = {i: [0] for i in self.ids}
        batches = [0]
        for stitch_id, path in self._files.items():
            path.touch()
            for end, num_batches, _ in _records(path):
                ends[stitch_id].append(end)
                if stitch_id == self.ids[0]:
                    batches.append(batches[-1] + num_batches)
        complete = min(len(e) - 1 for e in ends.values())
        complete = min(all_gather_object(complete))
        for stitch_id, path in self._files.items():
            os.truncate(path, ends[stitch_id][complete])
        return batches[complete]


def _records(path: Path) -> Iterator[tuple[int, int, list[list]]]:
    """The whole records of a file: where each ends, its batches and its results.

    Only what an evaluation on this machine has written is read here.
    """
    with path.open('rb') as file:
        while len(header := file.read(HEADER.size)) == HEADER.size:
            length, checksum = HEADER.unpack(header)
            left = os.fstat(file.fileno()).st_size - file.tell()
            record = file.read(min(length, left))
            if length > left or zlib.crc32(record) != checksum:
                return  # what a crash left of it
            num_batches, results = pickle.loads(record)
            yield file.tell(), num_batches, results
