"""The contract of anchors, for one network of every family."""

import pytest
import torch
from contract import AnchorContract
from staged_anchors import convnext, levit, mobilenet, resnet, swin

ARCH = dict(embed_dims=8, depth=5, num_heads=2)


class TestPlainViT(AnchorContract):
    config = dict(
        **dict(type='PlainViT', arch=ARCH, img_size=64, patch_size=16),
        **dict(num_registers=1, rel_pos_bias=True, final_norm=True),
        **dict(out_indices=(0, 4), drop_path_rate=0.4),
    )
    kept = 0, 3, 4
    levels = {'pos_embed': 0, 'reg_token': 0, 'blocks.1.ls1': 2, 'blocks.4.': 5}
    levels['norm.weight'] = 6


class TestTimmAnchor(AnchorContract):
    config = dict(
        **dict(type='TimmAnchor', model='vit_small_patch14_reg4_dinov2', img_size=56),
        model_args=dict(embed_dim=16, depth=4, num_heads=2),
        out_indices=(0, 3),
    )
    size = 56, 70
    kept = 0, 2, 3
    levels = {'reg_token': 0, 'patch_embed': 0, 'blocks.1.ls1': 2, 'vit.norm.': 5}


class TestSwin(AnchorContract):
    config = swin(out_indices=(1, -1))
    kept = 0, 2, 4, 7
    levels = {'stem': 0, 'blocks.2.downsample': 3, 'blocks.3.': 4}


class TestResNet(AnchorContract):
    config = resnet()
    kept = 0, 2, 4, 6, 7
    levels = {'stem.conv1': 0, 'blocks.4.downsample': 5}


class TestConvNeXt(AnchorContract):
    config = convnext()
    kept = 0, 1, 3
    levels = {'stem': 0, 'blocks.1.downsample': 2}


class TestLeViT(AnchorContract):
    config = levit()
    kept = 0, 2, 4
    levels = {'stem': 0, 'blocks.5.': 6}
    one_size = True


class TestMobileNet(AnchorContract):
    config = mobilenet()
    kept = 0, 1, 3
    levels = {'stem': 0, 'blocks.3.': 4}


class TestChainAnchor(AnchorContract):
    config = dict(
        **dict(type='ChainAnchor', net=TestPlainViT.config),
        **dict(chain='0:1/0 1:0/0 2:0/9 4:2/0', out_indices=(1, 4)),
    )
    kept = 0, 2, 4
    levels = {'pos_embed': 0, 'net.blocks.2.': 3, 'layers.3': 2, 'layers.5': 3}
    levels |= {'layers.9': 5, 'norm.weight': 6}
    test_checkpointing_changes_nothing = None
    test_what_is_frozen_gets_no_gradient_and_keeps_its_statistics = None


class TestMMResNet(AnchorContract):
    config = dict(
        type='MMResNet',
        net=dict(type='mmseg.ResNet', depth=18, base_channels=4, stem_channels=4),
    )
    kept = 0, 2, 4, 6, 7
    levels = {'net.conv1': 0, 'layer2.0': 3}
    test_checkpointing_changes_nothing = None
    test_what_is_frozen_gets_no_gradient_and_keeps_its_statistics = None

    @pytest.fixture(autouse=True)
    def mmseg(self):
        pytest.importorskip('mmseg.models')

    def load(self, part, path):
        weights = torch.load(path)
        weights = {k.removeprefix('backbone.'): v for k, v in weights.items()}
        part.load_state_dict(weights, strict=False)
