import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

import snnet_mm.integrations.mmseg  # noqa: F401

HEAD = dict(
    type='DPTDepthHead', in_channels=12, channels=8, post_process_channels=(4, 6, 8, 10)
)
ARCHS = (dict(embed_dims=w, depth=d, num_heads=2) for w, d in ((8, 4), (12, 8)))
BACKBONE = dict(
    type='SNNetv2',
    anchors=[dict(type='PlainViT', arch=arch, img_size=64) for arch in ARCHS],
    stitching_layer=dict(type='LoRAStitchingLayer', rank=2),
    out_indices=(1, 3, 5, 7),
    with_cls=True,
)


@pytest.fixture
def build(randomise):
    """Builds a depth model on a stitched backbone of widths 8/12."""
    init_default_scope('mmseg')

    def build(test_cfg=None, backbone=None, **head):
        config = dict(
            type='DPTDepthEstimator',
            data_preprocessor=dict(type='SegDataPreProcessor', seg_pad_val=0),
            backbone=BACKBONE | (backbone or {}),
            decode_head=HEAD | head,
            test_cfg=ConfigDict(test_cfg or dict(mode='whole')),
        )
        return MODELS.build(config)

    return build


@pytest.fixture
def sample():
    """Makes a data sample of a depth map (1, H, W)."""

    def sample(depth):
        size = dict.fromkeys(('img_shape', 'ori_shape'), tuple(depth.shape[-2:]))
        return SegDataSample(gt_depth_map=PixelData(data=depth), metainfo=size)

    return sample


@pytest.fixture
def predict(sample):
    """Predicts the depth of images (B, 3, H, W)."""

    @torch.no_grad()
    def predict(model, images):
        samples = model(images, [sample(i[:1]) for i in images], mode='predict')
        return torch.stack([s.pred_depth_map.data for s in samples])

    return predict
