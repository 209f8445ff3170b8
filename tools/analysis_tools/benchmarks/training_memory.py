"""Memory of a training step: everything in full, low-rank updates, and ESTA."""

from pathlib import Path

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from snnet_mm.evaluation.memory import count_peak
from snnet_mm.models import find_stitched_backbone, set_stitch, unwrapped_config

from ._common import CONFIGS

CUB = 'esta/fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py'
BATCH, SIZE = 64, 224
LAYER = dict(type='StitchingLayer')
MIB = 2**20
# Name, whether the anchors have low-rank updates, whether the stitching layers have,
# whether stitches have biases of their own, and whether the largest anchor teaches.
WAYS = (
    ('everything in full, one stitch', False, False, False, False),
    ('everything in full, with the largest anchor', False, False, False, True),
    ('low-rank updates, with the largest anchor', True, True, False, True),
    ('ESTA', True, True, True, True),
    ('ESTA, one stitch', True, True, True, False),
)
# Configs of ``configs/esta`` that were run on a CPU.
TINY, CAMVID = 'tiny/esta-ti-s-b', 'camvid/esta-setr-naive-fast-slow'
SMALL = (
    *(
        (f'{TINY}{way}_1xb64-600_tinyimagenet20-64x64.py', 64, (64, 64))
        for way in ('', '-no-bias', '-scaled-r', '-full-sl', '-full')
    ),
    *(
        (f'{CAMVID}{way}_1xb8-120_camvid-240x176.py', 8, (176, 240))
        for way in ('', '-no-bias', '-full')
    ),
)


def run() -> dict:
    return dict(
        batch=BATCH,
        images=f'{SIZE}x{SIZE}',
        ways=[measure(*way) for way in WAYS],
        small=[measure_config(*case) for case in SMALL],
    )


def measure(name: str, lora: bool, low_rank: bool, bias: bool, teacher: bool) -> dict:
    """Peaks of steps of AdamW in float32 on some stitches, counted, not computed."""
    cfg = Config.fromfile(CONFIGS / CUB)
    init_default_scope(cfg.default_scope)
    config = unwrapped_config(cfg.model)
    biases = dict(stitch_biases=dict(type='StitchBiases'))
    config.backbone.plugins = biases if bias else None
    if not low_rank:
        config.backbone.stitching_layer = LAYER
    for anchor in config.backbone.anchors:
        if not lora:
            anchor.lora = None
    return dict(way=name) | peaks_of(config, BATCH, (SIZE, SIZE), teacher)


def measure_config(name: str, batch: int, size: tuple[int, int]) -> dict:
    """Peaks of a config that was run on a CPU, with the largest anchor as teacher."""
    cfg = Config.fromfile(CONFIGS / 'esta' / name)
    init_default_scope(cfg.default_scope)
    return dict(config=Path(name).stem) | peaks_of(
        unwrapped_config(cfg.model), batch, size, teacher=True
    )


def peaks_of(config: dict, batch: int, size: tuple[int, int], teacher: bool) -> dict:
    """Peaks over some stitches, each trained with the largest anchor or alone."""
    with torch.device('meta'):
        model = MODELS.build(config).train()
        images = torch.empty(batch, 3, *size)
    space = find_stitched_backbone(model).space
    largest = space.anchor_ids[-1]
    peaks = []
    for stitch_id in (*space.anchor_ids, *space.ids[3::9]):
        ids = {largest, stitch_id} if teacher else {stitch_id}
        peaks.append(count_peak(lambda ids=ids: step(model, ids, images)))
        model.zero_grad()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    weights = sum(p.numel() for p in model.parameters())
    fixed = 4 * (weights + 2 * trained)  # and both moments of AdamW
    return dict(
        trained_M=trained / 1e6,
        weights_and_moments_MiB=fixed / MIB,
        mean_peak_MiB=(fixed + sum(peaks) / len(peaks)) / MIB,
        largest_peak_MiB=(fixed + max(peaks)) / MIB,
    )


def step(model: nn.Module, ids: set[int], images: Tensor) -> None:
    """One backward of the sum of losses, which leaves gradients behind."""
    loss = 0
    for stitch_id in ids:
        set_stitch(model, stitch_id)
        logits = model(images, mode='tensor')
        if logits.ndim == 4:  # a segmentor's are compared at the size of the images
            logits = F.interpolate(logits, images.shape[2:], mode='bilinear')
        labels = logits.new_empty(logits[:, 0].shape, dtype=torch.long)
        loss = loss + F.cross_entropy(logits, labels)
    loss.backward()
