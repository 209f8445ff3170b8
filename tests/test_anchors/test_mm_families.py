"""Backbones of the mm packages, run block by block."""

from copy import deepcopy

import pytest
import torch
from mm_backbones import DEEP, PLAIN_CASES, STAGED_CASES, SWIN_CLS, build
from mmengine.registry import MODELS
from staged_anchors import disturb
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import family_of

pytest.importorskip('mmdet.models')
pytest.importorskip('mmpretrain.models')
pytest.importorskip('mmseg.models')

STDC = dict(stdc_type='STDCNet1', in_channels=3, channels=(4, 4, 4, 4, 4))
STDC |= dict(bottleneck_type='cat', num_convs=4)
STDC |= dict(norm_cfg=dict(type='BN'), act_cfg=dict(type='ReLU'))
LATE = dict(SWIN_CLS, type='mmpretrain.SwinTransformer', out_after_downsample=True)


@torch.no_grad()
@pytest.mark.parametrize('family, kind, settings, read', PLAIN_CASES + STAGED_CASES)
def test_mm_families_equal_mm_bit_for_bit(family, kind, settings, read):
    net = disturb(build(kind, settings))
    net.eval()  # some return nothing
    assert family_of(net).name == family
    config = dict(type=family, net=dict(type=kind, **settings))
    anchor = MODELS.build(deepcopy(config)).eval()
    anchor.net.load_state_dict(net.state_dict())
    assert anchor.out_indices == read
    one_size = kind.endswith(('MAE', 'BEiT', 'BEiTViT'))
    for height in (64,) if one_size else (64, 96):
        images = torch.randn(2, 3, height, 64)
        wanted, found = tree_leaves(net(images)), tree_leaves(anchor(images))
        assert len(wanted) == len(found) >= len(read)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (
            lambda: family_of(build('mmseg.STDCNet', STDC)),
            'STDCNet.*mmdet.ResNet.*model.backbone.type',
        ),
        (
            lambda: MODELS.build(
                dict(type='MMSwin', net=dict(DEEP, type='mmdet.ResNet'))
            ),
            "type='MMSwin'.*'MMResNet'.*backbone.type",
        ),
        (
            lambda: MODELS.build(dict(type='MMSwin', net=LATE)),
            'True is invalid.*out_after_downsample',
        ),
    ],
)
def test_mm_families_refuse_what_is_not_mirrored(call, message):
    """What is mirrored is named, too."""
    with pytest.raises(ValueError, match=message):
        call()
