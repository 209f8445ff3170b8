"""mm's own backbones as anchors: equal features, and the same model around them."""

import copy

import pytest
import torch
from mmengine.registry import MODELS, DefaultScope
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors.mm_backbones import convert_backbone

VIT = dict(type='VisionTransformer', img_size=(32, 48), patch_size=8)
SEG_VIT = dict(VIT, embed_dims=16, num_layers=3, num_heads=2, out_indices=(0, 2))
ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=40)
CLS_VIT = dict(VIT, arch=ARCH, out_indices=[0, 2], out_type='featmap')
SWIN = dict(type='SwinTransformer', window_size=3)
PARTS = dict(depths=(2, 1, 2), num_heads=(1, 2, 4))
SEG_SWIN = dict(SWIN, embed_dims=8, **PARTS, strides=(4, 2, 2), out_indices=(0, 1, 2))
CLS_SWIN = dict(SWIN, arch=dict(embed_dims=8, **PARTS), img_size=64, out_indices=(0, 2))
RESNET = dict(type='ResNet', depth=18, out_indices=(1, 3))
BACKBONES = [
    ('mmseg', SEG_VIT),
    ('mmseg', dict(SEG_VIT, with_cls_token=False, patch_bias=True, final_norm=True)),
    ('mmseg', dict(SEG_VIT, output_cls_token=True, qkv_bias=False)),
    ('mmseg', dict(SEG_VIT, interpolate_mode='bilinear')),
    ('mmpretrain', CLS_VIT),
    ('mmpretrain', dict(CLS_VIT, with_cls_token=False, layer_scale_init_value=0.1)),
    ('mmseg', SEG_SWIN),
    ('mmdet', SEG_SWIN),
    ('mmpretrain', CLS_SWIN),
    ('mmpretrain', dict(CLS_SWIN, pad_small_map=True, img_size=32)),
    ('mmseg', RESNET),
    ('mmdet', dict(RESNET, depth=50)),
    ('mmpretrain', RESNET),
]


@pytest.fixture
def build(request):
    """Build a part of an mm package, with random weights and statistics."""

    def build(scope, config):
        pytest.importorskip(f'{scope}.models')
        with DefaultScope.overwrite_default_scope(scope):
            net = MODELS.build(copy.deepcopy(config))
        net.eval()  # returns nothing in some
        for name, value in net.state_dict().items():
            if value.is_floating_point():
                low = 0.5 if name.endswith('running_var') else -0.3
                value.uniform_(low, low + 0.6)
        return net

    torch.manual_seed(0)
    return build


def normalised(maps, norms):
    """Maps after the layer norms of their channels, if there are any."""
    for i, norm in enumerate(norms):
        yield norm(maps[i].movedim(1, -1)).movedim(-1, 1)
    yield from maps[len(norms) :]


@pytest.mark.parametrize(('scope', 'config'), BACKBONES)
def test_features_are_equal(scope, config, build):
    net = build(scope, config)
    parts = convert_backbone(net)
    anchor = parts.build().eval()
    for size in ((64, 64), (64, 96)):
        images = torch.randn(2, 3, *size)
        with torch.no_grad():
            wanted, found = net(images), list(normalised(anchor(images), parts.norms))
        assert len(wanted) == len(found)
        for a, b in zip(tree_leaves(list(wanted)), tree_leaves(found), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)
