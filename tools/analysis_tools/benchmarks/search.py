"""A search of 24 stitches in its rounds against all stitches in one pass.

The whole loop without reading images: backbone, head and metric of one batch, and the
Gaussian process. The search is told the prior's scores.
"""

import time
from collections.abc import Sequence

import torch
from mmengine.evaluator import Evaluator

from snnet_mm.evaluation import cost_table
from snnet_mm.evaluation.one_pass import prepare
from snnet_mm.evaluation.search import PER_ROUND, StitchSearch, blocks_run
from snnet_mm.models import set_stitch
from snnet_mm.stitching import StitchResults, prior_scores, visiting_order

from ._common import CAMVID, S_L, build, devices, read_config
from .one_pass import make_batch

# Name, config, images per batch, size, batches that a pass stands for.
CASES = (
    ('CamVid pair, 176x240', CAMVID, 2, (176, 240), 50),
    ('DeiT3 S/L, 150 classes, 128x128', S_L, 1, (128, 128), 50),
)
EVALUATE = 24


def run() -> dict:
    return dict(comparison=[measure(d, *case) for d in devices() for case in CASES])


@torch.no_grad()
def measure(
    device: str,
    name: str,
    config: str,
    number: int,
    size: tuple[int, int],
    batches: int,
) -> dict:
    """Seconds of both ways, per batch and of a data set of so many batches."""
    cfg = read_config(config)
    cfg.model.test_cfg = dict(mode='whole')
    model = build(cfg, device)
    space, costs = model.backbone.space, cost_table(model, size)
    num_classes = model.decode_head.num_classes
    batch = make_batch(number, size, num_classes)
    metric = Evaluator(dict(type='IoUMetric'))
    metric.dataset_meta = dict(classes=[str(i) for i in range(num_classes)])
    scores = prior_scores(space, costs.column('flops'))

    def one_pass(ids: Sequence[int]) -> float:
        start = time.perf_counter()
        predict = prepare(model, batch)
        with model.backbone.sharing_prefixes():
            for stitch in visiting_order(space[i] for i in ids):
                set_stitch(model, stitch.id)
                metric.process(data_samples=predict(), data_batch=batch)
        return time.perf_counter() - start

    one_pass(space.anchor_ids)
    start = time.perf_counter()
    passes = rounds(StitchSearch(space, costs), scores)
    choosing = time.perf_counter() - start
    searched, together = sum(map(one_pass, passes)), one_pass(space.ids)
    blocks = [sum(blocks_run(map(space.__getitem__, ids)) for ids in passes)]
    return dict(
        model=name,
        device=device,
        evaluated=[sum(map(len, passes)), len(space)],
        passes=len(passes),
        blocks_per_image=[*blocks, blocks_run(space)],
        search_s_per_batch=searched,
        all_s_per_batch=together,
        choosing_s=choosing,
        ratio=together * batches / (searched * batches + choosing),
    )


def rounds(search: StitchSearch, scores: dict[int, float]) -> list[list[int]]:
    """The stitches of every pass."""
    passes, tried, new = [], [], search.first(EVALUATE)
    while new:
        passes.append(new)
        tried += new
        metrics = {i: dict(mIoU=scores[i]) for i in tried}
        found = StitchResults.collect(search.space, search.costs, metrics)
        new = search.next(found, min(PER_ROUND, EVALUATE - len(tried)))
    return passes
