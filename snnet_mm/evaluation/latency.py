"""Latency of every stitch, from its parts timed once each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from rich.progress import track
from torch import Tensor, nn

from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import middle_stitches

from .device import empty_images
from .parts import Part, T, as_shipped, parts_by_stitch, run_model, run_parts, unwrapped


@dataclass(frozen=True)
class LatencyCheck:
    """A stitch that was timed end to end, in milliseconds.

    ``spread`` is the distance between the quartiles of its rounds over their median: on
    a quiet machine a few hundredths, and an error much below it says nothing.
    """

    stitch_id: int
    predicted: float
    measured: float
    spread: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one: 0.05 is 5 % too slow."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Latencies:
    """Milliseconds of one forward of a batch.

    Args:
        by_stitch: Predicted latency by stitch id.
        checks: Stitches that were also timed end to end.
    """

    by_stitch: Mapping[int, float]
    checks: tuple[LatencyCheck, ...]


def measure_latency(
    model: nn.Module,
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
    rounds: int = 20,
    check: Collection[int] | None = None,
    progress: bool = False,
) -> Latencies:
    """Time the parts of a model and sum them along the route of every stitch.

    A forward goes from preprocessed images to the raw output of the heads, on the
    device and in the data type of the model, in eval mode with merged stitching layers.
    In every round all parts are timed and some stitches end to end, in turn first, so
    that both meet the same load; a latency is the median over the rounds. The first two
    rounds warm up and do not count.

    Args:
        model: A stitched backbone, or an mm model that holds one.
        input_size: Height and width in pixels; by default the fixed size of the
            model's data preprocessor.
        batch: Images in a batch.
        rounds: Rounds that count.
        check: Stitches to time end to end; by default the anchors and, of every kind,
            the middle one.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If the model holds no stitched backbone, no size is known, the
            batch or the rounds are not positive, or an id is not in the space.
    """
    model = unwrapped(model)
    if batch < 1 or rounds < 1:
        raise ValueError(
            f'batch={batch}, rounds={rounds}; allowed is 1 or more (options: --batch, '
            '--rounds)'
        )
    space = find_stitched_backbone(model).space
    chosen = middle_stitches(space) if check is None else [space[i].id for i in check]
    images = empty_images(model, input_size, batch).normal_()
    with as_shipped(model):
        parts = parts_by_stitch(model)
        timed = [
            _time_round(model, images, chosen, parts_first=n % 2 == 0)
            for n in track(
                range(rounds + 2), 'Timing', disable=not progress, transient=True
            )
        ][2:]
    by_stitch = {
        i: statistics.median(
            sum(times[part] for part in parts[i]) for times, _ in timed
        )
        for i in parts
    }
    checks = [_check(i, by_stitch[i], [whole[i] for _, whole in timed]) for i in chosen]
    return Latencies(by_stitch, tuple(checks))


def _time_round(
    model: nn.Module, images: Tensor, check: Sequence[int], parts_first: bool
) -> tuple[dict[Part, float], dict[int, float]]:
    """Milliseconds of every part, and of some stitches end to end."""
    parts, whole = (_Stopwatch(images.device) for _ in range(2))
    if parts_first:
        run_parts(model, images, parts.time)
    for stitch_id in check if parts_first else reversed(check):
        set_stitch(model, stitch_id)
        whole.time(stitch_id, partial(run_model, model, images))
    if not parts_first:
        run_parts(model, images, parts.time)
    return parts.milliseconds(), whole.milliseconds()


def _check(stitch_id: int, predicted: float, rounds: Sequence[float]) -> LatencyCheck:
    median = statistics.median(rounds)
    low, high = median, median
    if len(rounds) > 1:
        low, _, high = statistics.quantiles(rounds, n=4, method='inclusive')
    return LatencyCheck(stitch_id, predicted, median, (high - low) / median)


@dataclass
class _Stopwatch:
    """Times calls; on a GPU by events, without waiting between calls."""

    device: torch.device
    marks: dict = field(default_factory=dict)

    def time(self, key: object, run: Callable[[], T]) -> T:
        """Run something and remember how long it took."""
        start = self._mark()
        result = run()
        self.marks[key] = start, self._mark()
        return result

    def milliseconds(self) -> dict:
        """How long everything took."""
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)
            return {k: a.elapsed_time(b) for k, (a, b) in self.marks.items()}
        return {k: 1e3 * (b - a) for k, (a, b) in self.marks.items()}

    def _mark(self) -> float | torch.cuda.Event:
        if self.device.type != 'cuda':
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event
