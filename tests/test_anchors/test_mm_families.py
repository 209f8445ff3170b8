"""Backbones of the mm packages, run block by block."""

from copy import deepcopy

import pytest
import torch
from mm_backbones import DEEP, PLAIN, PLAIN_CASES, STAGED_CASES, SWIN, SWIN_CLS, build
from mmengine.registry import MODELS
from staged_anchors import disturb
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import family_of
from snnet_mm.exports.mm_internals import make_traceable

mmdet = pytest.importorskip('mmdet.models')
mmpretrain = pytest.importorskip('mmpretrain.models')
mmseg = pytest.importorskip('mmseg.models')

STDC = dict(stdc_type='STDCNet1', in_channels=3, channels=(4, 4, 4, 4, 4))
STDC |= dict(bottleneck_type='cat', num_convs=4)
SIZES = (64, 64), (96, 64)


@torch.no_grad()
@pytest.mark.parametrize('family, kind, settings, read', PLAIN_CASES + STAGED_CASES)
def test_blocks_one_by_one_are_the_forward_to_the_bit(family, kind, settings, read):
    net = disturb(build(kind, settings))
    net.eval()  # some return nothing
    assert family_of(net).name == family
    config = dict(type=family, net=dict(type=kind, **settings))
    anchor = MODELS.build(deepcopy(config)).eval()
    anchor.net.load_state_dict(net.state_dict())
    assert anchor.out_indices == read
    for size in SIZES[: 1 if kind.endswith(('MAE', 'BEiT', 'BEiTViT')) else 2]:
        images = torch.randn(2, 3, *size)
        wanted, found = tree_leaves(net(images)), tree_leaves(anchor(images))
        assert len(wanted) == len(found) >= len(read)
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize(
    'family, kind, settings',
    [
        ('MMSegViT', 'mmseg.VisionTransformer', PLAIN | dict(num_layers=1)),
        (
            *('MMSwin', 'mmseg.SwinTransformer'),
            SWIN | dict(depths=(2,), num_heads=(1,), strides=(4,), out_indices=(0,)),
        ),
    ],
)
def test_export_traces_any_number_of_images(family, kind, settings):
    anchor = MODELS.build(dict(type=family, net=dict(type=kind, **settings)))
    make_traceable(disturb(anchor).eval())
    batch = torch.export.Dim('batch', max=2**31 - 1)
    program = torch.export.export(
        anchor, (torch.randn(2, 3, 64, 64),), dynamic_shapes=({0: batch},), strict=False
    ).module()
    for number in (1, 3):
        images = torch.randn(number, 3, 64, 64)
        found, wanted = program(images), anchor(images)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_not_mirrored_is_named_with_what_is():
    net = build(
        'mmseg.STDCNet', dict(STDC, norm_cfg=dict(type='BN'), act_cfg=dict(type='ReLU'))
    )
    message = 'STDCNet.*mmdet.ResNet.*mmseg.VisionTransformer.*model.backbone.type'
    with pytest.raises(ValueError, match=message):
        family_of(net)
    resnet = dict(type='mmdet.ResNet', **DEEP)
    with pytest.raises(ValueError, match="type='MMSwin'.*'MMResNet'.*backbone.type"):
        MODELS.build(dict(type='MMSwin', net=resnet))
    swin = dict(SWIN_CLS, type='mmpretrain.SwinTransformer', out_after_downsample=True)
    with pytest.raises(ValueError, match='True is invalid.*out_after_downsample'):
        MODELS.build(dict(type='MMSwin', net=swin))
