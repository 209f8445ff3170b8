"""Latency and peak memory of every stitch, measured on a device."""

import statistics
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from rich.progress import track
from torch import nn

from snnet_mm.models import (
    explaining_out_of_memory,
    find_stitched_backbone,
    is_compiled,
    set_stitch,
    unwrapped,
)
from snnet_mm.runtime.device import processor
from snnet_mm.stitching import Setup, StitchTable, middle_stitches
from snnet_mm.utils import check

from .counting import cost_table
from .parts import (
    Part,
    T,
    as_shipped,
    ends,
    forward_of,
    parts_by_stitch,
    returning,
    run_backbone_parts,
)
from .sizes import empty_images

WARM_UP = 2  # discarded rounds
# Names of data types in tables and exports.
DTYPE_NAMES = dict(float32='fp32', float16='fp16', bfloat16='bf16')


class LatencyCheck(NamedTuple):
    """Predicted and measured milliseconds of a stitch that was timed end to end.

    ``spread`` is the interquartile range of its rounds divided by their median, a few
    hundredths on an idle machine. An error well below it is not significant.
    """

    stitch_id: int
    predicted: float
    measured: float
    spread: float

    @property
    def error(self) -> float:
        """Relative error of the prediction: 0.05 is 5 % too slow."""
        return self.predicted / self.measured - 1


class Latencies(NamedTuple):
    """Milliseconds per forward of a batch: predictions by stitch id, and checks.

    ``by_part`` has those of every part of the model.
    """

    by_stitch: dict[int, float]
    checks: list[LatencyCheck]
    by_part: dict[Part, float]


def measure_latency(
    model: nn.Module,
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
    rounds: int = 20,
    check: Collection[int] | None = None,
    progress: bool = False,
    costs: StitchTable | None = None,
) -> Latencies:
    """Time the parts of a model and sum them along the route of every stitch.

    Of a model of :func:`~snnet_mm.models.compile_stitches`, stitches of ``check`` are
    timed end to end instead, by default all.

    A forward runs from preprocessed images to the raw output of the heads, or as far as
    :func:`cost_table` counts. It uses the model's device and data type, eval mode and
    merged stitching layers. Each round times all parts, and some stitches end to end.
    The order alternates between rounds, so that both see the same load. Medians over
    the rounds are taken of parts, not of sums: on a busy machine few parts of a round
    are interrupted, but perhaps most sums of many parts.

    Args:
        model: A stitched backbone, or an mm model that contains one.
        input_size: See :func:`cost_table`.
        batch: Images in a batch.
        rounds: Number of rounds, after two warm-up rounds.
        check: Ids of stitches to time end to end. Default: the anchors and the middle
            stitch of every other kind.
        progress: Whether to show a progress bar.
        costs: The model's cost table. Default: it is counted.
    """
    model = unwrapped(model)
    backbone = find_stitched_backbone(model)
    space = backbone.space
    costs = cost_table(model, input_size) if costs is None else costs
    forward = forward_of(model, costs.scope)
    whole = is_compiled(model)
    middle = [*space.ids] if whole else middle_stitches(space)
    ids = middle if check is None else [space[i].id for i in check]
    images = empty_images(model, input_size, batch)
    if images.is_floating_point():
        images.normal_()
    timed = []
    with as_shipped(model), explaining_out_of_memory(model, batch):
        parts = {} if whole else parts_by_stitch(model)
        turns = range(rounds + WARM_UP)
        for n in track(turns, 'Timing', disable=not progress, transient=True):
            watch = _Stopwatch(images.device)
            # None means all parts.
            for i in [*([] if whole else [None]), *ids][:: -1 if n % 2 else 1]:
                if i is not None:
                    set_stitch(model, i)
                    watch.time(i, partial(forward, model, images))
                    continue
                run_backbone_parts(backbone, images, watch.time)
                for part, output in ends(model, images):
                    with returning(backbone, output):
                        watch.time(part, partial(forward, model, images))
            timed.append(watch.milliseconds())
    timed = timed[WARM_UP:]
    used = {part for of in parts.values() for part in of}
    by_part = {p: statistics.median(times[p] for times in timed) for p in used}
    by_stitch = {i: sum(by_part[p] for p in of) for i, of in parts.items()}
    if whole:
        by_stitch = {i: statistics.median(times[i] for times in timed) for i in ids}
    checks = []
    for i in ids:
        rounds_of = [times[i] for times in timed]
        low, median, high = np.percentile(rounds_of, [25, 50, 75]).tolist()
        spread = (high - low) / median
        checks.append(LatencyCheck(i, by_stitch[i], median, spread))
    return Latencies(by_stitch, checks, by_part)


def measure_memory(
    model: nn.Module,
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
    progress: bool = False,
) -> dict[int, int]:
    """Measure peak bytes of one forward of every stitch, by stitch id, on a GPU.

    The peak includes the stitch's own weights, as if exported alone, the images, and
    the most that torch's allocator hands out for activations and for cuDNN and
    cuBLAS workspaces. Torch reports no peak on other devices. Arguments are as in
    :func:`measure_latency`.
    """
    model = unwrapped(model)
    weight = next(model.parameters())
    check(weight.is_cuda, '--device', str(weight.device), 'a GPU, to measure memory')
    costs = cost_table(model, input_size)
    params, forward = costs.column('params'), forward_of(model, costs.scope)
    images = empty_images(model, input_size, batch)
    peaks = {}
    with as_shipped(model), explaining_out_of_memory(model, batch):
        # Workspaces that stay allocated must not count for the first stitch.
        for stitch_id in find_stitched_backbone(model).space.anchor_ids:
            set_stitch(model, stitch_id)
            forward(model, images)
        for stitch_id in track(params, 'Memory', disable=not progress, transient=True):
            set_stitch(model, stitch_id)
            torch.cuda.reset_peak_memory_stats(images.device)
            before = torch.cuda.memory_allocated(images.device)
            forward(model, images)
            peak = torch.cuda.max_memory_allocated(images.device) - before
            weights = params[stitch_id] * weight.element_size()
            peaks[stitch_id] = weights + images.untyped_storage().nbytes() + peak
    return peaks


def device_name(model: nn.Module) -> str:
    """Return the name of the device of a model, as measurements name it."""
    device = next(model.parameters()).device
    if device.type == 'cuda':
        return torch.cuda.get_device_name(device)
    return processor() if device.type == 'cpu' else device.type


def measuring_setup(model: nn.Module, batch: int) -> Setup:
    """Describe the device, batch size and data type of a measurement."""
    weight, threads = next(model.parameters()), torch.get_num_threads()
    device = device_name(model) + (', compiled' if is_compiled(model) else '')
    if not weight.is_cuda:
        device += f', {threads} thread{"s" * (threads > 1)}'
    dtype = str(weight.dtype).removeprefix('torch.')
    return Setup(device, batch, DTYPE_NAMES.get(dtype, dtype))


class _Stopwatch:
    """Times calls; on a GPU with events, without synchronising between calls."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.marks = device, {}

    def time(self, key: object, run: Callable[[], T]) -> T:
        start, result = self._mark(), run()
        self.marks[key] = start, self._mark()
        return result

    def milliseconds(self) -> dict:
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)
            return {k: a.elapsed_time(b) for k, (a, b) in self.marks.items()}
        return {k: 1e3 * (b - a) for k, (a, b) in self.marks.items()}

    def _mark(self) -> float | torch.cuda.Event:
        if self.device.type != 'cuda':
            return time.perf_counter()
        stream = torch.cuda.current_stream(self.device)
        return stream.record_event(torch.cuda.Event(enable_timing=True))
