"""Keeping a time per call by switching stitches."""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from .budgets import best_within, pareto_front
from .checks import check, is_number
from .load import RECENT, Load

# Relative; together they keep a settled controller within 10 % of its target.
TOO_SLOW = 0.05  # excess over the target that triggers a cheaper stitch
HEADROOM = 0.03  # margin below the target that a better stitch must leave
WARM_UP = 1  # first calls, whose times are discarded


class BudgetController:
    """Selects the stitch for every call so that calls meet a target time.

    The expected time of stitch i is ``load * costs[i]``, with the :class:`Load` since
    the last switch. The best stitch that meets the target is run::

        controller = BudgetController(latencies, target_fps=25, load=1)
        for image in images:
            set_stitch(model, controller.stitch)
            with controller.measure():
                predict(image)

    To avoid oscillation, the tolerances grow with the noise of the times, and a better
    stitch must leave some headroom. Whenever a better stitch proves too slow, the next
    attempt waits for twice as many calls, until the load changes.

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
        check(positive, 'argument: costs', dict(costs), 'positive costs by stitch id')
        positive = is_number(target_fps) and target_fps > 0
        check(positive, '--target-fps', target_fps, 'a positive number')
        self.target_ms = 1000 / target_fps
        if scores is None:
            scores, higher_is_better = costs, True
        # Ascending in cost and score: the last one is the best.
        self.costs = pareto_front(costs, scores, higher_is_better)
        self._ids = [*self.costs]
        self._load = Load(load)
        self._index = 0 if load is None else self._best_within(self.target_ms)
        self._calls_to_skip = WARM_UP
        self._patience, self._waited = RECENT, 0
        self._stepped_up = self._warned = False

    @property
    def stitch(self) -> int:
        """The stitch id to run now."""
        return self._ids[self._index]

    @property
    def load(self) -> float | None:
        """Milliseconds per unit of cost; None if unknown."""
        return self._load.value

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time a call of the active stitch, which must block, and update the load."""
        start = time.perf_counter()
        yield
        self.update((time.perf_counter() - start) * 1000)

    def update(self, elapsed_ms: float) -> int:
        """Record the time of a call of :attr:`stitch` and return the next stitch."""
        positive = 0 < elapsed_ms < math.inf
        check(positive, 'argument: elapsed_ms', elapsed_ms, 'a positive time')
        if self._calls_to_skip:
            self._calls_to_skip -= 1
            return self.stitch
        self._waited += 1
        if self._load.add(elapsed_ms / self.costs[self.stitch]):
            self._patience, self._stepped_up = RECENT, False
        if self._load.settled:
            self._decide()
        return self.stitch

    def _decide(self) -> None:
        error = self._load.error()
        expected = self.load * self.costs[self.stitch]
        if expected > self.target_ms * (1 + max(TOO_SLOW, error)):
            if self._index == 0 and not self._warned:
                self._warned = True
                logging.getLogger('snnet_mm.runtime').warning(
                    f'stitch {self.stitch}, the cheapest one, takes {expected:.3g} ms; '
                    f'the target of {self.target_ms:.3g} ms cannot be met'
                )
            wanted = self._best_within(self.target_ms)
            if wanted < self._index:
                self._patience *= 2 if self._stepped_up else 1
                self._switch(wanted, stepped_up=False)
            return
        self._warned = False
        wanted = self._best_within(self.target_ms * (1 - max(HEADROOM, error)))
        if wanted > self._index and self._waited >= self._patience:
            self._switch(wanted, stepped_up=True)

    def _best_within(self, time_ms: float) -> int:
        best = best_within(self.costs, time_ms / self.load)
        return 0 if best is None else self._ids.index(best)

    def _switch(self, index: int, stepped_up: bool) -> None:
        self._index, self._stepped_up, self._waited = index, stepped_up, 0
        # Costs are approximate, so times of other stitches do not count.
        self._load.forget()
