"""torch.compile block by block: compile time, speed and graphs over 20 switches."""

import copy
import time
from statistics import median

import torch
from torch._dynamo.utils import counters

from snnet_mm.apis import compile_blocks, find_stitched_backbone, set_stitch

from ._common import CAMVID_SIZE, camvid_model, in_turn

SWITCHES = 20
ROUNDS = 5
WHOLE_ROUTES = 2  # compiled as a whole, every route takes as long as both anchors


@torch.no_grad()
def run() -> dict:
    eager = camvid_model().backbone
    images = torch.randn(1, 3, *CAMVID_SIZE)
    blocks = copy.deepcopy(eager)
    compile_blocks(blocks)
    ids = find_stitched_backbone(eager).space.ids[:SWITCHES]
    first_calls = _first_calls(blocks, blocks, ids, images)
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
    whole = copy.deepcopy(eager)
    whole_calls = _first_calls(
        whole, torch.compile(whole, dynamic=False), ids[:WHOLE_ROUTES], images
    )
    whole_graphs = counters['stats']['unique_graphs'] - graphs - switching
    return dict(
        stitches=rows,
        median_speedup=median(r['ratio'] for r in rows),
        compile_blocks_s=sum(first_calls),
        compile_blocks_graphs=graphs,
        graphs_of_later_switches=switching,
        worst_relative_difference=worst,
        compile_whole_s_per_route=median(whole_calls),
        compile_whole_graphs_per_route=whole_graphs / WHOLE_ROUTES,
    )


def _first_calls(model, run, ids, images) -> list[float]:
    """Seconds of the first call of every stitch, compilation included."""
    seconds = []
    for i in ids:
        set_stitch(model, i)
        start = time.perf_counter()
        run(images)
        seconds.append(time.perf_counter() - start)
    return seconds
