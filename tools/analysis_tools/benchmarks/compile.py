"""torch.compile block by block: compile time, speed and graphs over 20 switches."""

import copy
from statistics import median

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config

from snnet_mm.apis import compile_blocks, set_stitch

from ._common import CAMVID, CAMVID_SIZE, build, devices, elapsed_ms, in_turn

SWITCHES, ROUNDS = 20, 3


def run() -> dict:
    rows, figures = [], {}
    for device in devices():
        eager = build(CAMVID, device).backbone
        blocks = copy.deepcopy(eager)
        compile_blocks(blocks)
        images = torch.randn(1, 3, *CAMVID_SIZE, device=device)
        of_stitches, figures[device] = forwards(eager, blocks, images)
        rows += [dict(device=device) | row for row in of_stitches]
    return dict(stitches=rows, **figures)


@torch.no_grad()
def forwards(
    eager: nn.Module, blocks: nn.Module, images: Tensor
) -> tuple[list[dict], dict]:
    """A row for each stitch, and figures of all."""

    def switch_and_run(model: nn.Module, ids: list[int]) -> int:
        for i in ids:
            set_stitch(model, i)
            model(images)
        return counters['stats']['unique_graphs']

    counters.clear()
    space, ids = eager.space, eager.space.ids[:SWITCHES]
    with inductor_config.patch(force_disable_caches=True):
        compiling = elapsed_ms(lambda: switch_and_run(blocks, space.anchor_ids))
    graphs = counters['stats']['unique_graphs']
    rows, worst = [], 0.0
    for i in ids:
        for model in (eager, blocks):
            set_stitch(model, i)
        wanted, found = eager(images)[0], blocks(images)[0]
        worst = max(worst, ((found - wanted).norm() / wanted.norm()).item())
        runs = dict(eager=lambda: eager(images), compiled=lambda: blocks(images))
        times = in_turn(runs, ROUNDS)
        rows.append(dict(stitch=i, **times, ratio=times['eager'] / times['compiled']))
    switching = counters['stats']['unique_graphs'] - graphs
    counters.clear()
    # Tracing is enough to count; after ``recompile_limit`` graphs torch gives up.
    whole = torch.compile(eager, backend='eager', dynamic=False)
    return rows, dict(
        median_speedup=median(r['ratio'] for r in rows),
        compile_s=compiling / 1e3,
        graphs_of_two_anchors=graphs,
        graphs_of_later_switches=switching,
        worst_relative_difference=worst,
        graphs_as_a_whole=switch_and_run(whole, ids),
        recompile_limit=torch._dynamo.config.recompile_limit,
    )
