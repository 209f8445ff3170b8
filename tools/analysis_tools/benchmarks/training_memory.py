"""Memory of a training step: everything in full, low-rank updates, and ESTA."""

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from snnet_mm.analysis.memory import count_peak
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


def run() -> dict:
    return dict(
        batch=BATCH, images=f'{SIZE}x{SIZE}', ways=[measure(*way) for way in WAYS]
    )


def measure(name: str, lora: bool, low_rank: bool, bias: bool, teacher: bool) -> dict:
    """Peaks of steps of AdamW in float32 on some stitches, counted, not computed."""
    cfg = Config.fromfile(CONFIGS / CUB)
    init_default_scope(cfg.default_scope)
    config = unwrapped_config(cfg.model)
    config.backbone.stitch_bias = bias
    if not low_rank:
        config.backbone.stitching_layer = LAYER
    for anchor in config.backbone.anchors:
        if not lora:
            anchor.lora = None
    with torch.device('meta'):
        model = MODELS.build(config).train()
        images = torch.empty(BATCH, 3, SIZE, SIZE)
        labels = torch.empty(BATCH, dtype=torch.long)
    space = find_stitched_backbone(model).space
    largest = space.anchor_ids[-1]
    peaks = []
    for stitch_id in (*space.anchor_ids, *space.ids[3::9]):
        ids = {largest, stitch_id} if teacher else {stitch_id}
        peaks.append(count_peak(lambda ids=ids: step(model, ids, images, labels)))
        model.zero_grad()
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    weights = sum(p.numel() for p in model.parameters())
    fixed = 4 * (weights + 2 * trained)  # and both moments of AdamW
    return dict(
        way=name,
        trained_M=trained / 1e6,
        weights_and_moments_MiB=fixed / MIB,
        mean_peak_MiB=(fixed + sum(peaks) / len(peaks)) / MIB,
        largest_peak_MiB=(fixed + max(peaks)) / MIB,
    )


def step(model: nn.Module, ids: set[int], images: Tensor, labels: Tensor) -> None:
    """One backward of the sum of losses, which leaves gradients behind."""
    loss = 0
    for stitch_id in ids:
        set_stitch(model, stitch_id)
        loss = loss + F.cross_entropy(model(images, mode='tensor'), labels)
    loss.backward()
