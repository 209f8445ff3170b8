"""Backbones of the mm packages, run block by block."""

from copy import deepcopy

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import disturb
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import mm_family
from snnet_mm.exports.mm_internals import make_traceable

mmdet = pytest.importorskip('mmdet.models')
mmpretrain = pytest.importorskip('mmpretrain.models')
mmseg = pytest.importorskip('mmseg.models')

PLAIN = dict(img_size=64, patch_size=16, embed_dims=8, num_layers=3, num_heads=2)
ARCH = dict(embed_dims=8, num_layers=3, num_heads=2, feedforward_channels=16)
VIT = dict(arch=ARCH, img_size=64, patch_size=16)
BEIT = VIT | dict(use_abs_pos_emb=False)
SWIN = dict(embed_dims=8, depths=(2, 2, 3, 1), num_heads=(1, 1, 2, 2), window_size=4)
SWIN_ARCH = {k: SWIN[k] for k in ('embed_dims', 'depths', 'num_heads')}
SWIN_CLS = dict(arch=SWIN_ARCH, img_size=64, window_size=4, pad_small_map=True)
DEEP = dict(depth=50, base_channels=4, stem_channels=4)
# Family, backbone, settings; blocks and the blocks whose maps are read.
PLAIN_CASES = [
    ('MMSegViT', 'mmseg.VisionTransformer', PLAIN | dict(out_indices=(0, 2)), (0, 2)),
    (
        *('MMSegViT', 'mmseg.VisionTransformer'),
        PLAIN
        | dict(out_indices=2, final_norm=True, pre_norm=True, output_cls_token=True),
        (2,),
    ),
    ('MMSegViT', 'mmseg.VisionTransformer', PLAIN | dict(with_cls_token=False), (2,)),
    ('MMSegViT', 'mmseg.BEiT', PLAIN | dict(out_indices=(1, 2), qv_bias=True), (1, 2)),
    ('MMSegViT', 'mmseg.MAE', PLAIN | dict(out_indices=(1, 2)), (1, 2)),
    ('MMPretrainViT', 'mmpretrain.VisionTransformer', VIT, (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.VisionTransformer'),
        VIT | dict(out_type='avg_featmap', final_norm=False, pre_norm=True),
        (2,),
    ),
    (
        *('MMPretrainViT', 'mmpretrain.VisionTransformer'),
        VIT | dict(out_type='featmap', with_cls_token=False, out_indices=[0, -1]),
        (0, 2),
    ),
    ('MMPretrainViT', 'mmpretrain.BEiTViT', BEIT | dict(out_type='avg_featmap'), (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.BEiTViT'),
        BEIT | dict(use_shared_rel_pos_bias=True, use_rel_pos_bias=False),
        (2,),
    ),
]
STAGED_CASES = [
    ('MMSwin', 'mmseg.SwinTransformer', SWIN, (1, 3, 6, 7)),
    ('MMSwin', 'mmdet.SwinTransformer', SWIN | dict(out_indices=(1, 2)), (3, 6)),
    ('MMSwin', 'mmpretrain.SwinTransformer', SWIN_CLS, (7,)),
    ('MMResNet', 'mmseg.ResNet', DEEP | dict(depth=18), (1, 3, 5, 7)),
    (
        *('MMResNet', 'mmseg.ResNetV1c'),
        DEEP | dict(strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4), out_indices=(2, 3)),
        (12, 15),
    ),
    ('MMResNet', 'mmdet.ResNet', DEEP | dict(out_indices=(2,)), (12,)),
    ('MMResNet', 'mmdet.ResNeXt', DEEP | dict(groups=2), (2, 6, 12, 15)),
    ('MMResNet', 'mmpretrain.ResNet', DEEP | dict(expansion=4), (15,)),
    (
        *('MMConvNeXt', 'mmpretrain.ConvNeXt'),
        dict(arch=dict(depths=[1, 2, 2, 1], channels=[4, 8, 12, 16])),
        (5,),
    ),
    (
        *('MMConvNeXt', 'mmpretrain.ConvNeXt'),
        dict(
            arch=dict(depths=[1, 2], channels=[4, 8]),
            **dict(out_indices=(0, 1), gap_before_final_norm=False, use_grn=True),
        ),
        (0, 2),
    ),
    (
        *('MMMiT', 'mmseg.MixVisionTransformer'),
        dict(embed_dims=4, num_layers=[2, 1, 2, 1], num_heads=[1, 1, 1, 1]),
        (1, 2, 4, 5),
    ),
]
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


def build(kind, settings):
    package = kind.partition('.')[0]
    with MODELS.switch_scope_and_registry(package) as registry:
        return registry.build(dict(type=kind, **deepcopy(settings)))


@torch.no_grad()
@pytest.mark.parametrize('family, kind, settings, read', PLAIN_CASES + STAGED_CASES)
def test_blocks_one_by_one_are_the_forward_to_the_bit(family, kind, settings, read):
    net = disturb(build(kind, settings))
    net.eval()  # some return nothing
    assert mm_family(net).__name__ == family
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


@torch.no_grad()
@pytest.mark.parametrize('family, kind, settings, read', PLAIN_CASES + STAGED_CASES)
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
        mm_family(net)
    resnet = dict(type='mmdet.ResNet', **DEEP)
    with pytest.raises(ValueError, match="type='MMSwin'.*'MMResNet'.*backbone.type"):
        MODELS.build(dict(type='MMSwin', net=resnet))
    swin = dict(SWIN_CLS, type='mmpretrain.SwinTransformer', out_after_downsample=True)
    with pytest.raises(ValueError, match='True; allowed: False .*out_after_downsample'):
        MODELS.build(dict(type='MMSwin', net=swin))
