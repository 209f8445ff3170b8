"""Blocks of a plain ViT, written out; their windows, as those of timm."""

import math

import pytest
import torch
import torch.nn.functional as F
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch.testing import assert_close
from weights import load

from snnet_mm.anchors.vit_block import DropPath

WINDOWS = dict(
    cls_token=False, window_size=3, global_blocks=(1, 3), decomposed_rel_pos=True
)


def naive_block(block, x, bias=None):
    """A pre-norm transformer block, with attention head by head."""

    def norm(layer, x):
        return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, 1e-6)

    def scaled(layer, x):
        return x * layer.gamma if hasattr(layer, 'gamma') else x

    attn, heads, dim = block.attn, block.attn.num_heads, x.shape[-1]
    qkv = F.linear(norm(block.norm1, x), attn.qkv.weight, attn.qkv.bias)
    q, k, v = qkv.split(dim, dim=-1)
    out = torch.empty_like(x)
    for h in range(heads):
        part = slice(h * dim // heads, (h + 1) * dim // heads)
        logits = q[..., part] @ k[..., part].transpose(1, 2)
        logits = logits / math.sqrt(dim // heads)
        if bias is not None:
            logits = logits + bias[:, h]
        out[..., part] = logits.softmax(-1) @ v[..., part]
    x = x + scaled(block.ls1, F.linear(out, attn.proj.weight, attn.proj.bias))
    fc1, fc2 = block.mlp.fc1, block.mlp.fc2
    hidden = F.gelu(F.linear(norm(block.norm2, x), fc1.weight, fc1.bias))
    return x + scaled(block.ls2, F.linear(hidden, fc2.weight, fc2.bias))


@pytest.mark.parametrize('rel_pos_bias', [False, True])
@pytest.mark.parametrize('layer_scale_init', [None, 1e-6])
@pytest.mark.parametrize('qkv_bias', [False, True])
def test_a_block_is_naive_attention(
    build_vit, rel_pos_bias, layer_scale_init, qkv_bias
):
    kwargs = dict(rel_pos_bias=rel_pos_bias, layer_scale_init=layer_scale_init)
    vit = build_vit(embed_dims=12, num_heads=3, qkv_bias=qkv_bias, **kwargs).double()
    block, grid = vit.blocks[1], (2, 4)
    x = torch.randn(2, 9, 12, dtype=torch.float64)
    bias = block.attn.rel_pos_bias(grid) if rel_pos_bias else None
    assert_close(block(x, grid), naive_block(block, x, bias))
    # The parts under test do something.
    assert rel_pos_bias == (bias is not None and bias.abs().max() > 0.1)
    assert (layer_scale_init is not None) == hasattr(block.ls1, 'gamma')
    assert (block.attn.qkv.bias is not None) == qkv_bias


def test_a_dropped_branch_passes_its_input_on(build_vit):
    vit = build_vit(drop_path_rate=0.5)
    assert [block.drop_path.rate for block in vit.blocks] == [0, 0.25, 0.5]
    block, x = vit.blocks[-1], torch.randn(64, 17, 8)
    torch.manual_seed(3)
    y = block(x, (4, 4))
    torch.manual_seed(3)
    masks = torch.stack([torch.empty(64).bernoulli_(0.5) for _ in range(2)])
    attention, mlp = masks[..., None, None] * 2
    z = x + attention * block.ls1(block.attn(block.norm1(x), (4, 4)))
    assert_close(y, z + mlp * block.ls2(block.mlp(block.norm2(z))))
    assert DropPath(0.5).eval()(x) is x


@pytest.mark.parametrize('img_size', [(56, 40), (48, 24)])
@pytest.mark.parametrize('window_size', [3, 9])
def test_windows_equal_those_of_timm(
    build_vit, randomise, tmp_path, img_size, window_size
):
    """On grids that windows fill or not, and in windows larger than the image."""
    sizes = dict(depth=4, num_heads=2, img_size=img_size, patch_size=8)
    more = dict(num_classes=0, neck_chans=0, norm_layer=torch.nn.LayerNorm)
    more |= dict(use_rel_pos=True, global_attn_indexes=(1, 3), embed_dim=8)
    theirs = VisionTransformerSAM(window_size=window_size, **sizes, **more).eval()
    torch.save(randomise(theirs).state_dict(), tmp_path / 'sam.pth')
    args = WINDOWS | dict(window_size=window_size, layer_scale_init=None)
    ours = build_vit(norm_eps=1e-5, out_indices=range(4), **sizes, **args)
    load(ours, tmp_path / 'sam.pth', img_size=img_size)
    images = torch.randn(2, 3, *img_size)
    expected = theirs.forward_intermediates(images, intermediates_only=True)
    assert_close(ours(images), tuple(expected), atol=1e-5, rtol=1e-4)


def test_another_size_resamples_the_global_blocks_alone(build_vit):
    vit = build_vit(depth=4, img_size=(32, 24), **WINDOWS).eval()
    images = torch.randn(2, 3, 56, 40)
    (before,) = vit(images)
    vit.fix_input_size((56, 40))
    assert_close(vit(images)[0], before)
    rows = [len(block.attn.rel_pos_bias.rel_pos_h) for block in vit.blocks]
    assert rows == [5, 13, 5, 13]  # three rows of a window, or seven


def test_weights_of_vitdet_have_an_entry_for_a_lost_cls_token(build_vit, tmp_path):
    """Detectron2's names and layout."""
    source, vit = (build_vit(depth=4, img_size=32, **WINDOWS) for _ in range(2))
    state, pos_embed = source.state_dict(), source.pos_embed
    weights = {k.replace('rel_pos_bias.', ''): v for k, v in state.items()}
    weights['pos_embed'] = torch.cat([pos_embed[:, :1], pos_embed], dim=1)
    torch.save(dict(model=weights), tmp_path / 'vitdet.pth')
    load(vit, tmp_path / 'vitdet.pth')
    images = torch.randn(1, 3, 40, 32)
    assert_close(vit(images), source(images))
