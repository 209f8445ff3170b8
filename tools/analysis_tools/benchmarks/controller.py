"""The budget controller while a busy neighbour comes and goes on the same core."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from statistics import mean, median

import torch

from snnet_mm.apis import cost_table, set_stitch
from snnet_mm.deploy import BudgetController, fit_times
from snnet_mm.models import SNNetv2

from ._common import elapsed_ms

PHASES = ('alone', 'neighbour', 'alone')
CALLS = 150  # of each phase
SETTLING = 30  # calls of a phase that are left out of its figures
TARGET = 2.2  # times of the fast anchor alone: within reach beside a neighbour as well
SIZE = (128, 128)


@torch.no_grad()
def run() -> dict:
    model = _close_pair()
    images = torch.randn(1, 3, *SIZE)
    flops = cost_table(model, SIZE).column('flops')
    cores = os.sched_getaffinity(0)
    core = max(cores)
    os.sched_setaffinity(0, {core})
    try:
        return _run(model, images, flops, core)
    finally:
        os.sched_setaffinity(0, cores)


def _close_pair() -> SNNetv2:
    """134 stitches of 13 costs, never far apart: some stitch is near every target."""
    anchor = dict(type='PlainViT', img_size=SIZE, patch_size=8)
    return SNNetv2(
        [
            dict(arch=dict(embed_dims=96, depth=12, num_heads=3), **anchor),
            dict(arch=dict(embed_dims=108, depth=24, num_heads=3), **anchor),
        ]
    ).eval()


def _run(model, images, flops, core) -> dict:
    def call():
        model(images)

    measured = {}
    for i in model.space.anchor_ids:
        set_stitch(model, i)
        call()
        measured[i] = median(elapsed_ms(call) for _ in range(20))
    costs = fit_times(flops, measured)
    target = TARGET * measured[0]
    controller = BudgetController(costs, target_ms=target, load=1)
    rows = []
    for phase in PHASES:
        times, stitches = [], []
        with _neighbour(core, phase == 'neighbour'):
            for _ in range(CALLS):
                stitches.append(controller.stitch)
                set_stitch(model, controller.stitch)
                times.append(elapsed_ms(call))
                controller.update(times[-1])
        settled, ran = times[SETTLING:], stitches[SETTLING:]
        rows.append(
            dict(
                phase=phase,
                median_ms=median(settled),
                median_of_target=median(settled) / target,
                mean_of_target=mean(settled) / target,
                gflops=mean(flops[i] for i in ran) / 1e9,
                switches=sum(a != b for a, b in zip(ran, ran[1:], strict=False)),
                within_10_after_calls=_settled_after(times, target),
            )
        )
    return dict(
        target_ms=target, fast_anchor_ms=measured[0], slow_anchor_ms=measured[1],
        phases=rows,
    )  # fmt: skip


def _settled_after(times: list[float], target: float) -> int | None:
    """Calls until the median of the next 15 is within 10 % of the target."""
    for n in range(len(times) - 15):
        if abs(median(times[n : n + 15]) / target - 1) <= 0.1:
            return n
    return None


@contextmanager
def _neighbour(core: int, busy: bool):
    """Another process that never rests on the same core."""
    if not busy:
        yield
        return
    work = (
        f'import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: sum(range(999))'
    )
    process = subprocess.Popen([sys.executable, '-c', work])
    try:
        time.sleep(0.5)
        yield
    finally:
        process.kill()
        process.wait()
