"""Backbones of the mm packages, run block by block."""

import re
from copy import deepcopy

import pytest
import torch
from mm_backbones import DEEP, PLAIN_CASES, STAGED_CASES, SWIN_CLS, build
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


# Levels of parameters for layer-wise decay: the rest of the embedding is of level 0.
LEVELS = {
    'mmseg.VisionTransformer': {'ln1': 4, 'layers.2.ln1': 3, 'cls_token': 0},
    'mmpretrain.VisionTransformer': {'ln1': 4, 'layers.2.ln1': 3, 'pos_embed': 0},
    'mmseg.SwinTransformer': {'stages.1.blocks.0': 3, 'stages.0.downsample': 3},
    'mmpretrain.ConvNeXt': {'stages.1.0': 2, 'downsample_layers.1': 2},
    'mmseg.MixVisionTransformer': {'layers.1.0': 3, 'layers.0.2': 2, 'layers.2.1.1': 5},
}


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
    for name, wanted in LEVELS.get(kind, {}).items():
        of_name = (n for n, _ in anchor.named_parameters() if f'net.{name}' in n)
        found = {anchor.layer_depth(n) for n in of_name}
        assert found in ({(wanted, anchor.depth + 2)}, set())


# Some of each family; slow tests trace the others.
QUICK = re.compile(r'.*(VisionTransformer|mmseg\.Swin.*|mmseg\.ResNet|ConvNeXt)')
TRACED = [
    pytest.param(*case, marks=[] if QUICK.fullmatch(case[1]) else pytest.mark.slow)
    for case in PLAIN_CASES + STAGED_CASES
]


@torch.no_grad()
@pytest.mark.parametrize('family, kind, settings, read', TRACED)
def test_any_number_of_images_is_traced(family, kind, settings, read):
    anchor = MODELS.build(dict(type=family, net=dict(type=kind, **deepcopy(settings))))
    make_traceable(disturb(anchor).eval())
    images = torch.randn(2, 3, *SIZES[0])
    batch = torch.export.Dim('batch', max=2**31 - 1)
    program = torch.export.export(
        anchor, (images,), dynamic_shapes=({0: batch},), strict=False
    )
    for number in (1, 3):
        images = torch.randn(number, 3, *SIZES[0])
        pair = tree_leaves(program.module()(images)), tree_leaves(anchor(images))
        for found, wanted in zip(*pair, strict=True):
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
