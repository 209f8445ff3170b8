"""Peak memory of training both anchors stitched, against the slow anchor alone.

Weights, optimizer state, gradients of what is run, images and activations, in float32.
Activations are counted on meta tensors, without a GPU and without noise: the results of
all operations that are alive at once, from the images to the maps that heads (in
detectors: the pyramid) read, and back. Heads need the same in both and are left out.
"""

from statistics import mean

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.evaluation.memory import count_peak
from snnet_mm.models import set_stitch

from ._common import CONFIGS

SETR = 'setr/setr-naive_{}_8xb2-80k_coco-stuff10k-512x512.py'
VITDET = 'vitdet/mask-rcnn_{}_8xb1-100e_coco-1024x1024.py'
# Name, config, side, images per batch, tensors that the optimizer keeps per weight.
CASES = (
    ('SETR, SGD', SETR, 512, 2, 1),
    ('ViTDet, AdamW', VITDET, 1024, 1, 2),
)
DRAWS = 10


def run() -> dict:
    return dict(peaks=[compare(*case) for case in CASES])


def compare(name: str, config: str, side: int, batch: int, states: int) -> dict:
    alone = build(config.format('deit3-l'))
    stitched = build(config.format('snnetv2-deit3-s-l'))
    images = torch.empty(batch, 3, side, side, device='meta')
    base = peak(alone, images, states)
    costs = cost_table(stitched.backbone, (side, side))
    sampler = ResourceConstrainedSampler(costs, step=10e9, seed=0)
    drawn = [sampler.sample(i)[0] for i in range(DRAWS)]
    peaks = {
        i: peak(stitched, images, states, i)
        for i in sorted({*stitched.backbone.space.anchor_ids, *drawn})
    }
    return dict(
        model=name,
        images=f'{batch} x {side}x{side}',
        slow_alone_gb=base / 1e9,
        stitched_slow_gb=peaks[1] / 1e9,
        stitched_fast_gb=peaks[0] / 1e9,
        stitched_mean_gb=mean(peaks[i] for i in drawn) / 1e9,
        most_over_alone=max(peaks.values()) / base,
    )


def build(config: str) -> nn.Module:
    cfg = Config.fromfile(CONFIGS / config)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    return model.train()


def peak(
    model: nn.Module, images: Tensor, states: int, stitch_id: int | None = None
) -> int:
    """Bytes at the peak of a training step, all weights having been trained before."""
    if stitch_id is not None:
        set_stitch(model, stitch_id)
    parts = [model.backbone, *([model.neck] if model.with_neck else [])]
    weights = {p for part in parts for p in part.parameters()}
    kept = sum(p.nbytes * (1 + states * p.requires_grad) for p in weights)

    def step() -> None:
        maps = model.extract_feat(images)
        sum(m.sum() for m in maps).backward()

    bytes_of_step = count_peak(step)
    model.zero_grad(set_to_none=True)
    return kept + images.nbytes + bytes_of_step
