"""Time that scoring and drawing by importance add to a training step of ESTA."""

import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import TASK_UTILS
from mmpretrain.structures import DataSample

from snnet_mm.esta.saliency import SaliencyScorer
from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone, set_stitches

from ._common import build, in_turn, read_config

CONFIG = 'esta/tiny/esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py'
BATCH, SIDE, ROUNDS = 64, 64, 15


def run() -> dict:
    cfg = read_config(CONFIG)
    model = build(cfg).train()
    space, costs = find_stitched_backbone(model).space, cost_table(model)
    sampler = TASK_UTILS.build(
        cfg.default_hooks.stitch_sampling.sampler,
        default_args=dict(costs=costs, space=space),
    )
    # The largest anchor, and a stitch of middling cost.
    by_cost = sorted(costs, key=lambda i: costs[i].flops)
    ids = space.anchor_ids[-1], by_cost[len(by_cost) // 2]
    images = torch.randint(0, 256, (BATCH, 3, SIDE, SIDE), dtype=torch.uint8)
    samples = [DataSample().set_gt_label(i % 20) for i in range(BATCH)]
    # One optimizer is scored, the other is not.
    plain, scored = (build_optim_wrapper(model, cfg.optim_wrapper) for _ in range(2))
    scorer = SaliencyScorer(model, scored, sampler.sampler)

    def step() -> None:
        set_stitches(model, ids)
        model.train_step(dict(inputs=list(images), data_samples=samples), plain)

    def step_by_importance() -> None:
        sampler.sample(sampler.sampler.num_scored_steps)
        scorer.trained = list(set_stitches(model, ids).values())
        model.train_step(dict(inputs=list(images), data_samples=samples), scored)

    times = in_turn(dict(plain=step, by_importance=step_by_importance), ROUNDS)
    ratio = times['by_importance'] / times['plain']
    return {f'{name}_ms': ms for name, ms in times.items()} | dict(ratio=ratio)
