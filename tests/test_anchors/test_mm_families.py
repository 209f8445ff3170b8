"""Backbones of the mm packages, run block by block."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from mm_backbones import (
    BEIT,
    DEEP,
    MIT,
    PLAIN,
    PLAIN_CASES,
    STAGED_CASES,
    SWIN_CLS,
    VIT,
    build,
)
from mmengine.registry import MODELS
from staged_anchors import disturb
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import (
    BlockwiseAnchor,
    StagedFamily,
    TimmStageAnchor,
    family_of,
)
from snnet_mm.anchors.blockwise import MIRRORED
from snnet_mm.anchors.mm_families import SwinAttention

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
    'family, kind, settings',
    [
        ('MMPretrainViT', 'mmpretrain.VisionTransformer', VIT),
        ('MMPretrainViT', 'mmpretrain.BEiTViT', BEIT | dict(out_type='avg_featmap')),
        ('MMSwin', 'mmpretrain.SwinTransformer', SWIN_CLS),
    ],
)
def test_mm_families_levels_are_those_of_mmpretrain(family, kind, settings):
    anchor = MODELS.build(dict(type=family, net=dict(settings, type=kind)))
    for name, _ in anchor.net.named_parameters():
        # mmpretrain counts the layers between two stages with the stage before.
        level, levels = anchor.layer_depth(f'net.{name}')
        wanted = level - ('downsample' in name), levels
        assert anchor.net.get_layer_depth(name) == wanted, name


def test_mm_families_norm_before_the_blocks_is_embedding():
    net = dict(PLAIN, type='mmseg.VisionTransformer', pre_norm=True, final_norm=True)
    anchor = MODELS.build(dict(type='MMSegViT', net=net))
    assert anchor.layer_depth('net.ln_pre.weight') == (0, 5)
    assert anchor.layer_depth('net.ln1.weight') == (4, 5)


def test_mm_families_without_modules_between_stages_are_refused():
    row = family_of(build('mmseg.MixVisionTransformer', MIT))
    with pytest.raises(ValueError, match='enter_modules=None.*MMMiT'):
        replace(row, enter_modules=None)


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (
            lambda: family_of(build('mmseg.STDCNet', STDC)),
            'STDCNet.*mmdet.ResNet.*extending.md.*model.backbone.type',
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


def test_mm_families_whose_row_names_missing_parts_are_refused(monkeypatch):
    """Of a network, of a split of timm's, and of a block."""
    net = build('mmseg.MixVisionTransformer', MIT)
    row = replace(family_of(net), stages=lambda net: net.blocks)
    with pytest.raises(ValueError, match="MixVision.*row 'MMMiT'.*attribute 'blocks'"):
        BlockwiseAnchor(net, row)
    row = StagedFamily('TimmStageAnchor', ('timm.RegNet',), lambda net: net.stages)
    monkeypatch.setitem(MIRRORED, 'timm.RegNet', row)
    with pytest.raises(ValueError, match="regnetx_002.*RegNet' object.*anchors.model"):
        TimmStageAnchor('regnetx_002')
    kinds = {'mmseg.TransformerEncoderLayer': (SwinAttention,)}
    row = replace(family_of(net), branches=lambda net: kinds)
    with pytest.raises(ValueError, match='SwinAttention.*block 0, mmseg.*`w_msa`'):
        BlockwiseAnchor(net, row).branches(0)
