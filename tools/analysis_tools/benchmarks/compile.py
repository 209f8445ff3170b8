"""torch.compile block by block: compile time, speed and graphs over 20 switches.

Speed is that of forwards, and of forward and backward of the slow anchor.
"""

import copy
import time
from statistics import median

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config

from snnet_mm.apis import compile_blocks, find_stitched_backbone, set_stitch

from ._common import CAMVID_SIZE, camvid_model, devices, in_turn

SWITCHES = 20
ROUNDS = 3
TRAINING_ROUNDS = 9


def run() -> dict:
    rows, figures = [], {}
    for device in devices():
        eager = camvid_model(device).backbone
        images = torch.randn(1, 3, *CAMVID_SIZE, device=device)
        stitches, figures[device] = forwards(eager, images)
        rows += [dict(device=device) | row for row in stitches]
        figures[device] |= training(eager, images)
    return dict(stitches=rows, **figures)


@torch.no_grad()
def forwards(eager: nn.Module, images: Tensor) -> tuple[list[dict], dict]:
    """A row for each stitch, and figures of all."""
    counters.clear()
    blocks = copy.deepcopy(eager)
    compile_blocks(blocks)
    ids = find_stitched_backbone(eager).space.ids[:SWITCHES]
    start = time.perf_counter()
    with inductor_config.patch(force_disable_caches=True):
        for anchor in eager.space.anchor_ids:
            set_stitch(blocks, anchor)
            blocks(images)
    compiling = time.perf_counter() - start
    graphs = counters['stats']['unique_graphs']
    rows, worst = [], 0.0
    for i in ids:
        for model in (eager, blocks):
            set_stitch(model, i)
        runs = dict(eager=lambda: eager(images), compiled=lambda: blocks(images))
        times = in_turn(runs, ROUNDS)
        wanted, found = eager(images)[0], blocks(images)[0]
        worst = max(worst, ((found - wanted).norm() / wanted.norm()).item())
        rows.append(dict(stitch=i, **times, ratio=times['eager'] / times['compiled']))
    switching = counters['stats']['unique_graphs'] - graphs
    return rows, dict(
        median_speedup=median(r['ratio'] for r in rows),
        compile_s=compiling,
        graphs_of_two_anchors=graphs,
        graphs_of_later_switches=switching,
        worst_relative_difference=worst,
        **_as_a_whole(eager, ids, images),
    )


def training(eager: nn.Module, images: Tensor) -> dict:
    """Speed-up of forward and backward of the slow anchor, in training mode."""
    blocks = copy.deepcopy(eager)
    compile_blocks(blocks)

    def step(model: nn.Module) -> None:
        model.zero_grad()
        sum(m.square().mean() for m in model(images)).backward()

    for model in (eager.train(), blocks.train()):
        set_stitch(model, eager.space.anchor_ids[-1])
    times = in_turn(
        dict(eager=lambda: step(eager), compiled=lambda: step(blocks)), TRAINING_ROUNDS
    )
    return dict(training_speedup=times['eager'] / times['compiled'])


def _as_a_whole(model, ids, images) -> dict:
    """Graphs if the walk is compiled, not its blocks; tracing is enough to count them.

    Torch gives up after ``recompile_limit`` of them and runs the rest as they are.
    """
    counters.clear()
    whole = torch.compile(model, backend='eager', dynamic=False)
    for i in ids:
        set_stitch(model, i)
        whole(images)
    return dict(
        graphs_as_a_whole=counters['stats']['unique_graphs'],
        recompile_limit=torch._dynamo.config.recompile_limit,
    )
