"""The budget controller while a busy neighbour comes and goes on the same core."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from statistics import mean, median

import torch

from snnet_mm.apis import cost_table, set_stitch
from snnet_mm.deploy import BudgetController, fit_times
from snnet_mm.models import SNNetv2

from ._common import elapsed_ms

PHASES = ('alone', 'neighbour', 'alone')
CALLS = 150  # of each phase
SETTLING = 30  # calls of a phase that are left out of its figures
TARGET = 2.2  # times of the fast anchor alone: within reach next to a neighbour as well
SIZE = (128, 128)


@torch.no_grad()
def run() -> dict:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        return measure()
    finally:
        os.sched_setaffinity(0, cores)


def measure() -> dict:
    # 134 stitches of 13 costs, never far apart: some stitch is near every target.
    anchor = dict(type='PlainViT', img_size=SIZE, patch_size=8)
    archs = [dict(embed_dims=w, depth=d, num_heads=3) for w, d in ((96, 12), (108, 24))]
    model = SNNetv2([dict(anchor, arch=arch) for arch in archs]).eval()
    images = torch.randn(1, 3, *SIZE)
    flops = cost_table(model, SIZE).column('flops')

    def timed(stitch_id: int) -> float:
        set_stitch(model, stitch_id)
        return elapsed_ms(lambda: model(images))

    measured = {
        i: median([timed(i) for _ in range(21)][1:]) for i in model.space.anchor_ids
    }
    target = TARGET * measured[0]
    controller = BudgetController(fit_times(flops, measured), target_ms=target, load=1)
    rows = []
    for phase in PHASES:
        times, stitches = [], []
        with neighbour() if phase == 'neighbour' else nullcontext():
            for _ in range(CALLS):
                stitches.append(controller.stitch)
                times.append(timed(controller.stitch))
                controller.update(times[-1])
        settled, ran = times[SETTLING:], stitches[SETTLING:]
        rows.append(
            dict(
                phase=phase,
                median_ms=median(settled),
                median_of_target=median(settled) / target,
                gflops=mean(flops[i] for i in ran) / 1e9,
                switches=sum(a != b for a, b in zip(ran, ran[1:], strict=False)),
                within_10_after_calls=settled_after(times, target),
            )
        )
    anchors = dict(fast_anchor_ms=measured[0], slow_anchor_ms=measured[1])
    return dict(target_ms=target, **anchors, phases=rows)


def settled_after(times: list[float], target: float) -> int | None:
    """Calls until the median of the next 15 is within 10 % of the target."""
    ratios = (median(times[n : n + 15]) / target for n in range(len(times) - 15))
    return next((n for n, ratio in enumerate(ratios) if abs(ratio - 1) <= 0.1), None)


@contextmanager
def neighbour():
    """Another process that never rests, on the same core: it inherits the affinity."""
    command = [sys.executable, '-c', 'while True: sum(range(999))']
    with subprocess.Popen(command) as process:
        time.sleep(0.5)
        try:
            yield
        finally:
            process.kill()
