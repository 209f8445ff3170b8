"""Keeping a time per call, or a deadline for many, by switching stitches."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING

from .budgets import best_in_time, best_within, pareto_front
from .checks import check, is_number

if TYPE_CHECKING:
    from .runtime import StitchRuntime

RECENT = 9  # calls or batches whose median is the load
MARGIN = 0.05  # of a target time, by which stitches are switched
RESERVE = 0.05  # of the time until a deadline


class BudgetController:
    """Selects the stitch for every call so that calls meet a target time.

    The expected time of stitch i is ``load * costs[i]``. The load is the median ratio
    of the last measured times to their costs. The best stitch that meets the target is
    run; stitches are switched if the target is missed, or a better one meets it, by 5 %
    or more::

        controller = BudgetController(latencies, target_fps=25, load=1)
        for image in images:
            set_stitch(model, controller.stitch)
            with controller.measure():
                predict(image)

    Args:
        costs: Cost of every candidate by stitch id, in any unit proportional to time:
            milliseconds of a latency table, or FLOPs.
        scores: Scores of the candidates, of which only the Pareto front is run. By
            default the costs are the scores, and higher is better.
        target_fps: Target number of calls per second.
        load: Milliseconds per unit of cost, if known, such as 1 for a latency table. It
            determines the first stitch; by default the cheapest one runs first.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        scores: Mapping[int, float] | None = None,
        higher_is_better: bool = True,
        *,
        target_fps: float,
        load: float | None = None,
    ) -> None:
        positive = costs and all(0 < c < math.inf for c in costs.values())
        check(positive, 'costs', dict(costs), 'positive costs by stitch id')
        positive = is_number(target_fps) and target_fps > 0
        check(positive, '--target-fps', target_fps, 'a positive number')
        self.target_ms = 1000 / target_fps
        if scores is None:
            scores, higher_is_better = costs, True
        # Ascending in cost and score: the last one is the best.
        self.costs = pareto_front(costs, scores, higher_is_better)
        self.stitch = next(iter(self.costs))  # to run now
        self._ratios: deque[float] = deque(maxlen=RECENT)
        self._warm = False
        if load is not None:
            self.stitch = self._best_within(self.target_ms / load)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time a call of the active stitch, which must block, and update the load."""
        start = time.perf_counter()
        yield
        self.update((time.perf_counter() - start) * 1000)

    def update(self, elapsed_ms: float) -> int:
        """Record the time of a call of :attr:`stitch` and return the next stitch."""
        if not self._warm:  # the first call takes longer
            self._warm = True
            return self.stitch
        self._ratios.append(elapsed_ms / self.costs[self.stitch])
        if len(self._ratios) > RECENT // 2:
            limit, cost = self.target_ms / median(self._ratios), self.costs[self.stitch]
            better = self._best_within(limit * (1 - MARGIN))
            if cost > limit * (1 + MARGIN):
                self.stitch = self._best_within(limit)
            elif self.costs[better] > cost:
                self.stitch = better
        return self.stitch

    def _best_within(self, limit: float) -> int:
        best = best_within(self.costs, limit)
        return next(iter(self.costs)) if best is None else best


class Deadline:
    """Switches a runtime to the best stitch that finishes all images in time.

    Stitches are expected to take :meth:`StitchRuntime.front`, times the median load of
    the last batches: the time measured, with reading and writing, over that expected.
    """

    def __init__(self, runtime: StitchRuntime, seconds: float) -> None:
        self._runtime, self._front = runtime, runtime.front()
        self._end, self._loads = time.monotonic() + seconds, deque([1.0], maxlen=RECENT)

    def begin(self, left: int) -> None:
        """Select a stitch for the ``left`` images: the fastest if none is in time."""
        self._begin = time.monotonic()
        slack = 1000 * (1 - RESERVE) * (self._end - self._begin) / median(self._loads)
        self.stitch = best_in_time(self._front, slack, left) or next(iter(self._front))
        self._runtime.set_stitch(*self.stitch[::-1])

    def end(self, number: int) -> None:
        """Record the load of a batch of ``number`` images."""
        elapsed = 1000 * (time.monotonic() - self._begin)
        self._loads.append(elapsed / number / self._front[self.stitch])
