"""The backbone in mmsegmentation's own configs, with as few changes as promised."""

from pathlib import Path

import mmseg
import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from snnet_mm.apis import find_stitched_backbone, set_stitch

STOCK = Path(mmseg.__file__).parent / '.mim' / 'configs'
ANCHOR = "type='PlainViT', layer_scale_init=None, arch=dict(num_heads=2, "
CHANGES = """
_base_ = [{stock!r}]
custom_imports = dict(imports=['snnet_mm'], allow_failed_imports=False)
model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict({anchor}embed_dims=8, depth=4)),
            dict({anchor}embed_dims=16, depth=8)),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=2),
        out_indices=(1, 3, 5, 7),
    ),
    {heads}
)
"""
HEADS = {
    'upernet/upernet_r50_4xb4-80k_ade20k-512x512.py': """
    decode_head=dict(in_channels=[16] * 4),
    auxiliary_head=dict(in_channels=16),
    """,
    'sem_fpn/fpn_r50_4xb4-160k_ade20k-512x512.py': """
    neck=dict(in_channels=[16] * 4),
    """,
}


@pytest.mark.parametrize('stock', HEADS)
def test_a_stock_segmentor_trains_a_step(stock, tmp_path):
    own = tmp_path / 'own.py'
    changes = dict(stock=str(STOCK / stock), anchor=ANCHOR, heads=HEADS[stock])
    own.write_text(CHANGES.format(**changes))
    cfg = Config.fromfile(own)
    init_default_scope(cfg.default_scope)
    model = revert_sync_batchnorm(MODELS.build(cfg.model)).train()
    images = torch.randn(2, 3, 64, 96)
    labels = torch.randint(0, 150, (2, 1, 64, 96))
    info = dict(metainfo=dict(img_shape=(64, 96)))
    samples = [SegDataSample(gt_sem_seg=PixelData(data=x), **info) for x in labels]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    backbone = find_stitched_backbone(model)
    for stitch_id in (0, 1, backbone.space.ids[-1]):
        set_stitch(model, stitch_id)
        losses = model(images, samples, mode='loss')
        loss = sum(v for k, v in losses.items() if 'loss' in k)
        optimizer.zero_grad()
        loss.backward()
        anchor = backbone.anchors[backbone.active_stitch.end_anchor]
        weight = anchor.blocks[-1].mlp.fc2.weight
        before = weight.clone()
        assert weight.grad.abs().sum() > 0
        optimizer.step()
        assert not weight.equal(before)
