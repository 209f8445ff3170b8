"""Keeping a deadline for many images by switching stitches."""

import time

from .budgets import best_within
from .load import RECENT, Load
from .runtime import StitchRuntime

RESERVE = 0.05  # of the time until a deadline


class Deadline:
    """Switches a runtime to the best stitch that finishes all images in time.

    Stitches are expected to take :meth:`StitchRuntime.front`, times the :class:`Load`.
    Measured times include reading and writing.
    """

    def __init__(self, runtime: StitchRuntime, seconds: float) -> None:
        self._runtime, self._front = runtime, runtime.front()
        self._end, self._load = time.monotonic() + seconds, Load(1.0, RECENT)
        self._last: tuple[float, int, float] | None = None

    def choose(self, left: int) -> None:
        """Select a stitch for the ``left`` images: the fastest if none is in time.

        The load is estimated from the images processed since the last call.
        """
        now = time.monotonic()
        if self._last is not None:
            begin, before, expected = self._last
            self._load.add(1000 * (now - begin) / (before - left) / expected)
        slack = 1000 * (1 - RESERVE) * (self._end - now) / self._load.value
        key = best_within(self._front, slack / left) or next(iter(self._front))
        self._runtime.set_stitch(*key[::-1])
        self._last = now, left, self._front[key]
