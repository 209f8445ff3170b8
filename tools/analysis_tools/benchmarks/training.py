"""A training step of DeiT3 S/L under ROS against one of DeiT3-L alone.

SETR with all its heads on ADE20K's 150 classes and the config's optimizer, one image of
256x256. Every round steps the slow anchor alone, then one stitch of each ROS group;
their mean is an iteration of the stitched training.
"""

from statistics import mean, median

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope

from snnet_mm.analysis import cost_table
from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.models import set_stitch

from ._common import CONFIGS, elapsed_ms, in_turn
from .one_pass import make_batch

SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
SIDE, STEP, ROUNDS = 256, 10e9, 3
CP_ROUNDS = 3


def run() -> dict:
    torch.manual_seed(0)
    batch = make_batch(1, (SIDE, SIDE), 150)
    alone, stitched = Trained('deit3-l', batch), Trained('snnetv2-deit3-s-l', batch)
    costs = cost_table(stitched.model.backbone, (512, 512))
    groups = ResourceConstrainedSampler(costs, step=STEP, seed=0).groups
    slow, by_group = [], [[] for _ in groups]
    for round_ in range(ROUNDS + 1):
        slow.append(elapsed_ms(alone.step))
        for group, times in zip(groups, by_group, strict=True):
            stitch_id = group[round_ * len(group) // (ROUNDS + 1)]
            set_stitch(stitched.model, stitch_id)
            times.append(elapsed_ms(stitched.step))
    # The first round warms up.
    slow_ms = median(slow[1:])
    by_group_ms = [median(times[1:]) for times in by_group]
    flops = [mean(costs[i].flops for i in group) for group in groups]
    return dict(
        groups=len(groups),
        slow_alone_ms=slow_ms,
        stitched_ms=mean(by_group_ms),
        ratio=mean(by_group_ms) / slow_ms,
        ratio_of_flops=mean(flops) / costs[1].flops,
        by_group=[
            dict(
                gflops_at_512=f / 1e9, ms=median(t[1:]), of_slow=median(t[1:]) / slow_ms
            )
            for f, t in zip(flops, by_group, strict=True)
        ],
        **checkpointing(alone),
    )


class Trained:
    """A model of a config with its optimizer."""

    def __init__(self, name: str, batch: dict) -> None:
        cfg = Config.fromfile(CONFIGS / SETR.format(name))
        init_default_scope(cfg.default_scope)
        # Which pads images of other sizes.
        cfg.model.data_preprocessor.size = (SIDE, SIDE)
        self.model = revert_sync_batchnorm(MODELS.build(cfg.model)).train()
        self.optim = build_optim_wrapper(self.model, cfg.optim_wrapper)
        self.batch = batch

    def step(self) -> None:
        """One step of the optimizer."""
        self.model.train_step(self.batch, self.optim)


def checkpointing(alone: Trained) -> dict:
    """What running blocks again costs, on the slow anchor."""

    def step(with_cp: bool) -> None:
        alone.model.backbone.with_cp = with_cp
        alone.step()

    times = in_turn(dict(off=lambda: step(False), on=lambda: step(True)), CP_ROUNDS)
    return dict(checkpointing_ratio=times['on'] / times['off'])
