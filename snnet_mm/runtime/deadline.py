"""Keeping a deadline for many images by switching stitches."""

import time
from collections import deque
from statistics import median

from .budgets import best_within
from .runtime import StitchRuntime

RECENT = 5  # batches whose median load is the recent one
RESERVE = 0.05  # of the time until a deadline


class Deadline:
    """Switches a runtime to the best stitch that finishes all images in time.

    Stitches are expected to take :meth:`StitchRuntime.front`, times the median load of
    the last batches. The load is the measured time, including reading and writing, over
    the expected time.
    """

    def __init__(self, runtime: StitchRuntime, seconds: float) -> None:
        self._runtime, self._front = runtime, runtime.front()
        self._end, self._loads = time.monotonic() + seconds, deque([1.0], maxlen=RECENT)
        self._last: tuple[float, int, float] | None = None

    def choose(self, left: int) -> None:
        """Select a stitch for the ``left`` images: the fastest if none is in time.

        The images that are no longer left show the load since the last call.
        """
        now = time.monotonic()
        if self._last is not None:
            begin, before, expected = self._last
            self._loads.append(1000 * (now - begin) / (before - left) / expected)
        slack = 1000 * (1 - RESERVE) * (self._end - now) / median(self._loads)
        key = best_within(self._front, slack / left) or next(iter(self._front))
        self._runtime.set_stitch(*key[::-1])
        self._last = now, left, self._front[key]
