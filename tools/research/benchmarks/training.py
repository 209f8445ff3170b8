"""A training step of DeiT3 S/L under ROS against one of DeiT3-L alone.

Every round times a step of the slow anchor alone, then of one stitch per ROS group. The
mean over groups is the time of an average iteration of the stitched training.
"""

from collections.abc import Callable
from functools import partial
from statistics import mean, median

from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from torch import nn

from snnet_mm.costs import cost_table
from snnet_mm.models import set_stitch
from snnet_mm.training import ResourceConstrainedSampler

from ._common import build, devices, elapsed_ms, read_config
from .one_pass import make_batch

SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
# Image side and batch size.
BATCHES = dict(cpu=(256, 1), cuda=(512, 2))
STEP, ROUNDS = 10e9, 7


def load(name: str, device: str) -> tuple[nn.Module, Callable[[], object]]:
    """Return the model of a config, and a function that runs a training step."""
    cfg = read_config(SETR.format(name))
    side, number = BATCHES[device]
    # Otherwise the preprocessor pads the images.
    cfg.model.data_preprocessor.size = (side, side)
    model = revert_sync_batchnorm(build(cfg, device)).train()
    optim = build_optim_wrapper(model, cfg.optim_wrapper)
    return model, partial(
        model.train_step, make_batch(number, (side, side), 150), optim
    )


def run() -> dict:
    rows = []
    return dict(by_group=rows) | {device: measure(device, rows) for device in devices()}


def measure(device: str, rows: list[dict]) -> dict:
    """Return the comparison, and append a row per ROS group to ``rows``."""
    _, step_alone = load('deit3-l', device)
    model, step = load('snnetv2-deit3-s-l', device)
    table = cost_table(model.backbone, (512, 512))
    groups = ResourceConstrainedSampler(table, step=STEP, seed=0).groups
    costs = table.column('flops')
    slow, by_group = [], [[] for _ in groups]
    for round_ in range(ROUNDS + 1):
        slow.append(elapsed_ms(step_alone))
        for group, times in zip(groups, by_group, strict=True):
            stitch_id = group[round_ * len(group) // (ROUNDS + 1)]
            set_stitch(model, stitch_id)
            times.append(elapsed_ms(step))
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
    )
