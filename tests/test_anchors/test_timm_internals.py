"""Parts of timm that are private still are what our use of them takes for granted."""

import pytest
import timm
import torch
from narrow_timm import anchor_of
from staged_anchors import disturb, levit, swin
from timm.models import beit, swin_transformer, vision_transformer_sam
from torch.testing import assert_close

from snnet_mm.anchors import timm_internals


@pytest.mark.parametrize('fused', [True, False])
@torch.no_grad()
def test_beit_adds_its_own_bias_to_that_of_the_caller(fused):
    attention = beit.Attention(8, num_heads=2, window_size=(2, 2)).eval()
    attention.fused_attn = fused
    attention.relative_position_bias_table.normal_()
    x, bias = torch.randn(1, 5, 8), torch.randn(1, 2, 5, 5)
    own = attention._get_rel_pos_bias()
    wanted = attention(x, shared_rel_pos_bias=bias)
    timm_internals.take_bias_from_outside(attention)
    assert_close(attention(x, shared_rel_pos_bias=own + bias), wanted)
    assert not torch.allclose(attention(x, shared_rel_pos_bias=bias), wanted)


def network(config):
    args = config['model_args'] | dict(img_size=64)
    return disturb(timm.create_model(config['model'], **args)).eval()


@torch.no_grad()
def test_masks_of_swin_follow_the_size():
    net, x = network(swin()), torch.randn(1, 24, 16, 8)
    block = net.layers[0].blocks[1]
    assert isinstance(block, swin_transformer.SwinTransformerBlock)
    assert block.shift_size != (0, 0)
    assert (block.dynamic_mask, block.input_resolution) == (False, (16, 16))
    timm_internals.accept_any_size(net)
    net(torch.randn(1, 3, 61, 90))
    wanted = block(x)
    assert block.dynamic_mask
    timm_internals.fix_mask(block, (24, 16))
    assert_close(block(x), wanted)
    assert not block.dynamic_mask
    assert len(block.attn_mask) == 6 * 4


@torch.no_grad()
def test_levit_keeps_biases_until_it_is_told_not_to():
    net, x = network(levit()), torch.randn(1, 16, 16)
    attention = net.stages[0].blocks[0].attn
    before = attention(x)
    attention.attention_biases.normal_(std=9)
    assert attention(x).equal(before)
    timm_internals.forget_biases(net)
    assert not attention(x).equal(before)


@torch.no_grad()
def test_attention_of_sam_gives_the_same_in_parts():
    anchor = anchor_of('samvit_base_patch16', img_size=64)
    attention, x = anchor.vit.blocks[1].attn, torch.randn(1, 4, 4, 32)
    assert isinstance(attention, vision_transformer_sam.Attention)
    wanted = attention(x)
    timm_internals.split_attention(attention)
    assert_close(attention(x), wanted, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_positions_are_resampled_only_where_sizes_are_dynamic(monkeypatch):
    anchor = anchor_of('vit_small_patch14_reg4_dinov2')
    images = torch.randn(1, 3, 28, 56)
    wanted = anchor.embed(images).tokens
    anchor.fix_input_size((28, 56))
    assert not anchor.vit.dynamic_img_size
    monkeypatch.delattr('torch.nn.functional.interpolate')
    assert_close(anchor.embed(images).tokens, wanted)
