"""A training step of DeiT3 S/L under ROS against one of DeiT3-L alone.

SETR with all its heads on ADE20K's 150 classes and the config's optimizer; on a CPU one
image of 256x256, on a GPU two of 512x512. Every round steps the slow anchor alone, then
one stitch of each ROS group; their mean is an iteration of the stitched training. Then
what gradient checkpointing and half precision make of a step of the slow anchor.
"""

from functools import partial
from statistics import mean, median

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models import set_stitch

from ._common import CONFIGS, devices, elapsed_ms, in_turn, limits, limits_ms
from .one_pass import make_batch

SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
# Side of the images, and their number.
BATCHES = dict(cpu=(256, 1), cuda=(512, 2))
STEP, ROUNDS, VARIANT_ROUNDS = 10e9, 7, 3


def run() -> dict:
    figures, by_group = {}, []
    for device in devices():
        figures[device], rows = measure(device)
        by_group += rows
    return dict(by_group=by_group, **figures)


def measure(device: str) -> tuple[dict, list[dict]]:
    """The comparison, and a row for each ROS group."""
    rates = limits(device)
    torch.manual_seed(0)
    alone, stitched = Trained('deit3-l', device), Trained('snnetv2-deit3-s-l', device)
    costs = cost_table(stitched.model.backbone, (512, 512))
    groups = ResourceConstrainedSampler(costs, step=STEP, seed=0).groups
    with FlopCounterMode(display=False) as counter:
        alone.step()
    macs = counter.get_total_flops() // 2
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
    figures = dict(
        groups=len(groups),
        slow_alone_ms=slow_ms,
        stitched_ms=mean(by_group_ms),
        ratio=mean(by_group_ms) / slow_ms,
        ratio_of_flops=mean(flops) / costs[1].flops,
        **{f'slow_{k}': v for k, v in limits_ms(alone.model, macs, rates).items()},
        **variants(alone, device),
    )
    rows = [
        dict(device=device, gflops_at_512=f / 1e9, ms=ms, of_slow=ms / slow_ms)
        for f, ms in zip(flops, by_group_ms, strict=True)
    ]
    return figures, rows


class Trained:
    """A model of a config with its optimizer."""

    def __init__(self, name: str, device: str) -> None:
        cfg = Config.fromfile(CONFIGS / SETR.format(name))
        init_default_scope(cfg.default_scope)
        side, number = BATCHES[device]
        # Which pads images of other sizes.
        cfg.model.data_preprocessor.size = (side, side)
        model = revert_sync_batchnorm(MODELS.build(cfg.model))
        self.model = model.to(device).train()
        self.optim = build_optim_wrapper(self.model, cfg.optim_wrapper)
        self.batch = make_batch(number, (side, side), 150)

    def step(self) -> None:
        """One step of the optimizer."""
        self.model.train_step(self.batch, self.optim)


def variants(alone: Trained, device: str) -> dict:
    """What a step takes of the plain one if it runs blocks again, or in half precision.

    On a CPU half precision is bfloat16.
    """

    def step(with_cp: bool = False, half: bool = False) -> None:
        alone.model.backbone.with_cp = with_cp
        dtype = torch.float16 if device == 'cuda' else torch.bfloat16
        with torch.autocast(device, dtype, enabled=half):
            alone.step()

    plain = dict(plain=step)
    cp, half = (
        in_turn(plain | dict(other=partial(step, **setting)), VARIANT_ROUNDS)
        for setting in (dict(with_cp=True), dict(half=True))
    )
    return dict(
        checkpointing_ratio=cp['other'] / cp['plain'],
        half_precision_ratio=half['other'] / half['plain'],
    )
