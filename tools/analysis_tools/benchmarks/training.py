"""A training step of DeiT3 S/L under ROS against one of DeiT3-L alone.

Every round steps the slow anchor alone, then one stitch of each ROS group; their mean
is an iteration of the stitched training. Then what gradient checkpointing and half
precision make of a step of the slow anchor.
"""

from functools import partial
from statistics import mean, median

import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models import set_stitch

from ._common import build, devices, elapsed_ms, in_turn, read_config
from .one_pass import make_batch

SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
# Side of the images, and their number.
BATCHES = dict(cpu=(256, 1), cuda=(512, 2))
STEP, ROUNDS, VARIANT_ROUNDS = 10e9, 7, 3


class Trained:
    """A model of a config with its optimizer."""

    def __init__(self, name: str, device: str) -> None:
        cfg = read_config(SETR.format(name))
        side, number = BATCHES[device]
        # Which pads images of other sizes.
        cfg.model.data_preprocessor.size = (side, side)
        self.model = revert_sync_batchnorm(build(cfg, device)).train()
        self.optim = build_optim_wrapper(self.model, cfg.optim_wrapper)
        self.batch = make_batch(number, (side, side), 150)
        self.dtype = torch.float16 if device == 'cuda' else torch.bfloat16
        self.device = device

    def step(self, with_cp: bool = False, half: bool = False) -> None:
        """One step of the optimizer."""
        self.model.backbone.with_cp = with_cp
        with torch.autocast(self.device, self.dtype, enabled=half):
            self.model.train_step(self.batch, self.optim)


def run() -> dict:
    rows = []
    return dict(by_group=rows) | {device: measure(device, rows) for device in devices()}


def measure(device: str, rows: list[dict]) -> dict:
    """Compare, and add a row for each ROS group."""
    alone, stitched = Trained('deit3-l', device), Trained('snnetv2-deit3-s-l', device)
    table = cost_table(stitched.model.backbone, (512, 512))
    groups = ResourceConstrainedSampler(table, step=STEP, seed=0).groups
    costs = table.column('flops')
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
    by_group_flops = [mean(costs[i] for i in group) for group in groups]
    rows += [
        dict(device=device, gflops_at_512=f / 1e9, ms=ms, of_slow=ms / slow_ms)
        for f, ms in zip(by_group_flops, by_group_ms, strict=True)
    ]
    return dict(
        groups=len(groups),
        slow_alone_ms=slow_ms,
        stitched_ms=mean(by_group_ms),
        ratio=mean(by_group_ms) / slow_ms,
        ratio_of_flops=mean(by_group_flops) / costs[1],
        checkpointing_ratio=ratio(alone, with_cp=True),
        half_precision_ratio=ratio(alone, half=True),
    )


def ratio(trained: Trained, **variant: bool) -> float:
    """Time of a variant of a step, of the plain one's; half is bfloat16 on a CPU."""
    runs = dict(plain=trained.step, other=partial(trained.step, **variant))
    times = in_turn(runs, VARIANT_ROUNDS)
    return times['other'] / times['plain']
