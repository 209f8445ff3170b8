"""Keeping a time budget at run time by switching stitches."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

from mmengine.logging import print_log

from snnet_mm.stitching import StitchResults, pareto_front

# Relative; together they keep a settled controller within 10 % of its target.
TOO_SLOW = 0.05  # above the target: a cheaper stitch is chosen
HEADROOM = 0.03  # below the target: what a better stitch must leave free
STEP = 0.15  # a change of the recent load that makes older measurements worthless
DOUBT = 3.7  # two standard errors of a median of n times, as median deviation / sqrt(n)
RECENT = 5  # calls that a decision needs, and whose median is the recent load
MEMORY = 30  # calls that the load is averaged over while it does not change
WARM_UP = 1  # first calls, whose times say little


class BudgetController:
    """Chooses the stitch of every call such that calls take a target time.

    A call of stitch i is expected to take ``load * costs[i]``. The load is the median
    ratio of measured times to costs since the last switch or the last change of the
    load, so that single outliers do not matter, a steady load is known precisely, and a
    change is seen after three calls. The best stitch that meets the target is run::

        controller = BudgetController(latencies, target_fps=25, load=1)
        for image in images:
            set_stitch(model, controller.stitch)
            with controller.measure():
                predict(image)

    Three things keep it from swinging between stitches: noisy times must show more
    before anything changes, a better stitch is taken only if it leaves some headroom,
    and if it had to be taken back, the next attempt waits twice as many calls, until
    the load changes.

    Args:
        costs: Expected cost of every candidate by stitch id, in any unit that is
            proportional to time: milliseconds of a latency table, or FLOPs. The closer
            to the truth, the fewer switches are needed.
        scores: How good the candidates are; those that another one beats at an equal
            or lower cost are never run. By default the costlier is the better one.
        higher_is_better: Whether a larger score is better.
        target_ms: Time that a call may take, in milliseconds.
        target_fps: The same as calls per second. One of both is given.
        load: Milliseconds per unit of cost, if known, such as 1 for a latency table;
            it decides what runs first. By default the cheapest stitch does.
        clock: Seconds, for :meth:`measure`.

    Raises:
        ValueError: If there are no candidates, a cost is not positive, a scored stitch
            has no cost, or not exactly one target is given, and that a positive one.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        scores: Mapping[int, float] | None = None,
        higher_is_better: bool = True,
        *,
        target_ms: float | None = None,
        target_fps: float | None = None,
        load: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not costs or not all(0 < c < math.inf for c in costs.values()):
            raise ValueError(
                f'costs={dict(costs)}; wanted are one or more stitches with a positive '
                'cost each'
            )
        self.target_ms = _target(target_ms, target_fps)
        if scores is None:
            scores, higher_is_better = costs, True
        front = pareto_front(costs, scores, higher_is_better)
        self.costs = {i: costs[i] for i in front}  # ascending: the last is the best
        self._ids = front
        self._clock = clock
        self._load = load
        self._place = 0 if load is None else self._best_within(self.target_ms)
        self._ratios: deque[float] = deque(maxlen=MEMORY)
        self._unheeded = WARM_UP
        self._patience, self._waited = RECENT, 0
        self._climbed = self._missed = False

    @classmethod
    def from_results(
        cls,
        results: StitchResults,
        costs: Mapping[int, float] | None = None,
        **kwargs,
    ) -> BudgetController:
        """A controller over the Pareto front of an evaluation.

        Args:
            results: What ``stitches.json`` holds.
            costs: Costs by stitch id; by default the FLOPs of the results.
            **kwargs: Target, load and clock of the controller.
        """
        if costs is None:
            costs = {r.id: r.flops for r in results.stitches}
        scores = {r.id: results.score(r) for r in results.stitches}
        return cls(costs, scores, results.higher_is_better, **kwargs)

    @property
    def stitch(self) -> int:
        """The stitch id to run now."""
        return self._ids[self._place]

    @property
    def load(self) -> float | None:
        """Milliseconds per unit of cost, as far as known."""
        return self._load

    def expected_ms(self, stitch_id: int) -> float | None:
        """Time that a candidate is expected to take under the present load."""
        return None if self._load is None else self._load * self.costs[stitch_id]

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time a call of the active stitch, and learn from it.

        On an accelerator the call must wait for its result, as one that brings it to
        the CPU does.
        """
        start = self._clock()
        yield
        self.update((self._clock() - start) * 1000)

    def update(self, elapsed_ms: float) -> int:
        """Learn from the time of a call of :attr:`stitch`.

        Returns:
            The stitch id to run next.

        Raises:
            ValueError: If the time is not a positive number.
        """
        if not 0 < elapsed_ms < math.inf:
            raise ValueError(f'elapsed_ms={elapsed_ms}; allowed are positive times')
        if self._unheeded:
            self._unheeded -= 1
            return self.stitch
        self._ratios.append(elapsed_ms / self.costs[self.stitch])
        self._waited += 1
        if len(self._ratios) < RECENT:
            return self.stitch
        recent = median(list(self._ratios)[-RECENT:])
        if abs(recent / median(self._ratios) - 1) > STEP + self._doubt(RECENT):
            self._forget(keep=RECENT)
        self._load = median(self._ratios)
        self._decide()
        return self.stitch

    def _decide(self) -> None:
        doubt = self._doubt(len(self._ratios))
        allowed = self.target_ms * (1 + max(TOO_SLOW, doubt))
        if self.expected_ms(self.stitch) > allowed:
            self._warn_if_missed()
            wanted = self._best_within(self.target_ms)
            if wanted < self._place:
                if self._climbed:
                    self._patience *= 2
                self._switch(wanted, climbed=False)
            return
        self._missed = False
        wanted = self._best_within(self.target_ms * (1 - max(HEADROOM, doubt)))
        if wanted > self._place and self._waited >= self._patience:
            self._switch(wanted, climbed=True)

    def _doubt(self, number: int) -> float:
        """How far off the median of a number of calls may be, relative."""
        middle = median(self._ratios)
        deviation = median(abs(r - middle) for r in self._ratios) / middle
        return DOUBT * deviation / math.sqrt(number)

    def _best_within(self, time_ms: float) -> int:
        """Place of the best stitch that is expected within a time, or 0."""
        within = [n for n, i in enumerate(self._ids) if self.expected_ms(i) <= time_ms]
        return within[-1] if within else 0

    def _switch(self, place: int, climbed: bool) -> None:
        self._place, self._climbed, self._waited = place, climbed, 0
        # Costs are never quite right: what comes is measured for itself.
        self._ratios.clear()

    def _forget(self, keep: int) -> None:
        """The load has changed: what was learned before does not count."""
        recent = list(self._ratios)[-keep:]
        self._ratios.clear()
        self._ratios.extend(recent)
        self._patience, self._climbed = RECENT, False

    def _warn_if_missed(self) -> None:
        """Say once that even the cheapest stitch is too slow."""
        if self._place == 0 and not self._missed:
            self._missed = True
            print_log(
                f'stitch {self.stitch}, the cheapest one, takes '
                f'{self.expected_ms(self.stitch):.3g} ms; the target of '
                f'{self.target_ms:.3g} ms cannot be met',
                logger='current',
                level=logging.WARNING,
            )


def fit_times(
    costs: Mapping[int, float], measured_ms: Mapping[int, float]
) -> dict[int, float]:
    """Milliseconds of all stitches from those of a few: the line through them.

    FLOPs leave out what every stitch takes alike, such as loading the image. Timing
    the cheapest and the costliest stitch once tells that apart.

    Args:
        costs: Cost of every stitch, such as FLOPs.
        measured_ms: Measured times of two stitches or more, in milliseconds.

    Raises:
        ValueError: If there are fewer than two measured costs, or times do not rise
            with them.
    """
    x = [costs[i] for i in measured_ms]
    y = list(measured_ms.values())
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    if spread == 0 or rise <= 0:
        raise ValueError(
            f'measured_ms={dict(measured_ms)} at costs {x}; wanted are times that rise '
            'with the costs of two stitches or more'
        )
    slope = rise / spread
    # A line may cross zero beyond the measured ones; times do not.
    return {
        i: max(mean_y + slope * (c - mean_x), min(y) / 10) for i, c in costs.items()
    }


def _target(target_ms: float | None, target_fps: float | None) -> float:
    given = [t for t in (target_ms, target_fps) if t is not None]
    if len(given) != 1 or not 0 < given[0] < math.inf:
        raise ValueError(
            f'target_ms={target_ms}, target_fps={target_fps}; wanted is one of them, '
            'above 0 (option: --target-fps)'
        )
    return given[0] if target_ms is not None else 1000 / target_fps
