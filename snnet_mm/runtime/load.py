"""Load of a device, estimated from the times of calls."""

import math
from collections import deque
from statistics import median

STEP = 0.15  # relative change of the recent load that invalidates older calls
ERROR = 3.7  # two standard errors of a median of n times, in units of MAD / sqrt(n)
RECENT = 5  # calls whose median is the recent load
MEMORY = 30  # maximum number of calls in the median of a stable load
UNKNOWN = 0.2  # relative error of the load of fewer than RECENT calls


class Load:
    """Ratio of measured to expected times: the median of those of the last calls.

    Calls before a change of the load do not count.

    Args:
        value: The load before any call, which counts as one; None if unknown.
        memory: Maximum number of calls that count. Few follow a rising load sooner.
    """

    def __init__(self, value: float | None = None, memory: int = MEMORY) -> None:
        #: The load, None if unknown.
        self.value = value
        self._ratios = deque([] if value is None else [value], maxlen=memory)

    @property
    def settled(self) -> bool:
        """Whether enough calls count to decide by."""
        return len(self._ratios) >= RECENT

    def add(self, ratio: float) -> bool:
        """Record the ratio of a call and return whether the load has changed."""
        self._ratios.append(ratio)
        recent, changed = [*self._ratios][-RECENT:], False
        if self.settled:
            ratio = median(recent) / median(self._ratios)
            changed = abs(ratio - 1) > STEP + self.error(RECENT)
        if changed:
            self._ratios = deque(recent, maxlen=self._ratios.maxlen)
        self.value = median(self._ratios)
        return changed

    def error(self, calls: int | None = None) -> float:
        """Return the relative error to expect of the median of a number of calls.

        By default of all that count now.
        """
        if not self.settled:
            return UNKNOWN
        middle = median(self._ratios)
        deviation = median(abs(ratio - middle) for ratio in self._ratios) / middle
        return ERROR * deviation / math.sqrt(calls or len(self._ratios))

    def forget(self) -> None:
        """Forget all calls, but not the load."""
        self._ratios.clear()
