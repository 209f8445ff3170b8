import math

import pytest
import torch
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.vit_block import DropPath


def naive_block(block, x, bias=None):
    """A pre-norm transformer block, written out."""

    def norm(layer, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred / (variance + 1e-6).sqrt() * layer.weight + layer.bias

    def scaled(layer, x):
        return x * layer.gamma if hasattr(layer, 'gamma') else x

    attn, heads = block.attn, block.attn.num_heads
    dim = x.shape[-1]
    qkv = norm(block.norm1, x) @ attn.qkv.weight.T
    if attn.qkv.bias is not None:
        qkv = qkv + attn.qkv.bias
    q, k, v = qkv.split(dim, dim=-1)
    out = torch.empty_like(x)
    for h in range(heads):
        part = slice(h * dim // heads, (h + 1) * dim // heads)
        logits = q[..., part] @ k[..., part].transpose(1, 2)
        logits = logits / math.sqrt(dim // heads)
        if bias is not None:
            logits = logits + bias[:, h]
        out[..., part] = logits.softmax(-1) @ v[..., part]
    x = x + scaled(block.ls1, out @ attn.proj.weight.T + attn.proj.bias)
    hidden = norm(block.norm2, x) @ block.mlp.fc1.weight.T + block.mlp.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    return x + scaled(block.ls2, hidden @ block.mlp.fc2.weight.T + block.mlp.fc2.bias)


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


FAMILIES = {
    'deit3': (dict(no_embed_class=True, init_values=1e-6), dict()),
    'vit': (dict(), dict(pos_embed_prefix=True, layer_scale_init=None)),
    'embedded registers': (
        dict(reg_tokens=2),
        dict(num_registers=2, pos_embed_prefix=True, layer_scale_init=None),
    ),
    'no cls': (
        dict(class_token=False, qkv_bias=False),
        dict(cls_token=False, qkv_bias=False, layer_scale_init=None),
    ),
}


@pytest.mark.parametrize('size', [(32, 32), (48, 24)])
@pytest.mark.parametrize('family', FAMILIES)
def test_equal_to_timm(family, size, randomise):
    timm = pytest.importorskip('timm')
    theirs_kwargs, ours_kwargs = FAMILIES[family]
    arch, rest = dict(depth=3, num_heads=2), dict(num_classes=0, global_pool='')
    rest |= dict(embed_dim=16, img_size=32, patch_size=8, dynamic_img_size=True)
    theirs = timm.models.VisionTransformer(**arch, **rest, **theirs_kwargs)
    theirs = randomise(theirs).eval()
    arch = dict(arch, embed_dims=16)
    ours = PlainViT(arch, 32, 8, final_norm=True, **ours_kwargs).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, *size)
    with torch.no_grad():
        state, (found,) = states_of(ours, images)[-1], ours(images)
        wanted = theirs.forward_features(images)
        (feature_map,) = theirs.forward_intermediates(
            images, [2], norm=True, intermediates_only=True
        )
    assert_close(state.tokens, wanted, rtol=1e-5, atol=1e-5)
    assert_close(found, feature_map, rtol=1e-5, atol=1e-5)
    assert state.grid == (size[0] // 8, size[1] // 8)


def test_forward_returns_the_maps_of_the_out_indices(build_vit):
    vit, images = build_vit(depth=4, out_indices=(2, -1, 0)), torch.randn(2, 3, 16, 32)
    states = states_of(vit, images)
    for feature_map, i in zip(vit(images), (2, 3, 0), strict=True):
        assert feature_map.equal(vit.to_feature_map(states[i]))


def test_an_img_size_that_is_not_whole_patches(build_vit):
    vit = build_vit(img_size=(17, 30))
    assert vit.grid == (3, 4)
    assert vit.pos_embed.shape == (1, 12, 8)
    tokens, grid = vit.embed(torch.zeros(1, 3, 17, 30))
    assert grid == (3, 4)
    no_bias = tokens[:, 1:] - vit.patch_embed.proj.bias
    assert_close(no_bias, vit.pos_embed)
    images, padded = torch.randn(2, 3, 17, 30), torch.zeros(2, 3, 24, 32)
    padded[:, :, :17, :30] = images
    assert vit.embed(images).tokens.equal(vit.embed(padded).tokens)


def test_drop_path_keeps_the_mean_and_drops_whole_images():
    x = torch.ones(20000, 2, 3, requires_grad=True)
    y = DropPath(0.2)(x)
    assert y.detach().unique().tolist() == [0, 1.25]
    per_image = y.flatten(1)
    assert per_image.equal(per_image[:, :1].expand(-1, 6))
    # Four standard deviations of the mean of 20,000 draws.
    assert abs(y.mean().item() - 1) < 4 * 0.5 / math.sqrt(20000)
    y.sum().backward()
    assert x.grad.equal(y.detach())
    state = torch.get_rng_state()
    assert DropPath(0.5).eval()(x) is x
    assert DropPath(0.0)(x) is x
    assert torch.get_rng_state().equal(state)


def test_a_dropped_branch_passes_its_input_on(build_vit):
    vit = build_vit(drop_path_rate=0.5)
    assert [block.drop_path.rate for block in vit.blocks] == [0, 0.25, 0.5]
    block = vit.blocks[-1]
    x = torch.randn(64, 17, 8)
    attended = block.ls1(block.attn(block.norm1(x), (4, 4)))
    kept = torch.stack([x, x + 2 * attended])
    torch.manual_seed(3)
    y = block(x, (4, 4))
    torch.manual_seed(3)
    masks = torch.stack([torch.empty(64).bernoulli_(0.5) for _ in range(2)])
    for n in range(64):
        z = kept[int(masks[0, n]), n : n + 1]
        z = z + masks[1, n] * 2 * block.ls2(block.mlp(block.norm2(z)))
        assert_close(y[n : n + 1], z)


@pytest.mark.parametrize('prefix', [False, True])
def test_without_position_embedding(build_vit, prefix):
    vit = build_vit(abs_pos_embed=False, pos_embed_prefix=prefix, num_registers=2)
    zeroed = build_vit(pos_embed_prefix=prefix, num_registers=2)
    zeroed.load_state_dict(vit.state_dict(), strict=False)
    torch.nn.init.zeros_(zeroed.pos_embed)
    assert 'pos_embed' not in vit.state_dict()
    images = torch.randn(2, 3, 32, 24)
    assert vit(images)[0].equal(zeroed(images)[0])


@pytest.mark.parametrize(
    'options',
    [dict(pos_embed_antialias=False), dict(abs_pos_embed=False, rel_pos_bias=True)],
    ids=['absolute', 'relative'],
)
def test_fixing_the_input_size_resamples_once(build_vit, options, monkeypatch):
    vit = build_vit(num_registers=2, frozen_stages=0, **options).eval()
    images = torch.randn(2, 3, 24, 56)
    with torch.no_grad():
        (wanted,) = vit(images)
        trained = {name for name, p in vit.named_parameters() if p.requires_grad}
        vit.fix_input_size((24, 56))
        # Nothing is left to be resampled.
        monkeypatch.delattr('torch.nn.functional.interpolate')
        (fixed,) = vit(images)
    assert torch.equal(fixed, wanted)
    assert {n for n, p in vit.named_parameters() if p.requires_grad} == trained
