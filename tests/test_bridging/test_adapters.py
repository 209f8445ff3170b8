from functools import partial

import pytest
import torch
import torch.nn.functional as F
from staged_anchors import disturb

from snnet_mm.anchors import TokenState
from snnet_mm.bridging import (
    BottleneckAdapter,
    Conv3x3Adapter,
    LinearAdapter,
    LinearReLUAdapter,
    ViTBlockAdapter,
)

SPATIAL = Conv3x3Adapter, BottleneckAdapter
RELU = LinearReLUAdapter, Conv3x3Adapter
BLOCKS = ViTBlockAdapter, BottleneckAdapter
KINDS = [LinearAdapter, LinearReLUAdapter, ViTBlockAdapter, *SPATIAL]
HOPS = [(8, 8), (12, 16)]
assert_close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-4)


def build(kind, *args, **kwargs):
    torch.manual_seed(0)
    options = dict(head_dim=4) if kind is ViTBlockAdapter else {}
    return disturb(kind(*args, **options, **kwargs)).eval()


def normalised(x, norm):
    """A batch norm of a map ``(B, C, H, W)``."""
    statistics = norm.running_mean, norm.running_var
    return F.batch_norm(x, *statistics, norm.weight, norm.bias, eps=norm.eps)


def by_hand(kind, layer, x):
    """What one adapter does to a map, written with functions."""
    if kind in (LinearAdapter, LinearReLUAdapter):
        x = torch.einsum('bchw,dc->bdhw', x, layer.weight)
        return x + layer.bias.reshape(-1, 1, 1)
    if kind is Conv3x3Adapter:
        return F.conv2d(x, layer.weight, layer.bias, layer.stride, padding=1)
    if kind is BottleneckAdapter:
        conv1, bn1, _, conv2, bn2, _, conv3, bn3 = layer.branch
        y = normalised(F.conv2d(x, conv1.weight), bn1).relu()
        y = F.conv2d(y, conv2.weight, stride=conv2.stride, padding=1)
        y = normalised(y, bn2).relu()
        y = normalised(F.conv2d(y, conv3.weight), bn3)
        conv, bn = layer.shortcut
        x = normalised(F.conv2d(x, conv.weight, stride=conv2.stride), bn)
        return (x + y).relu()
    state = TokenState.of_map(x)
    tokens = layer['block'](layer['widen'](state.tokens), state.grid)
    return state._replace(tokens=tokens).as_map()


@pytest.mark.parametrize(
    ('kind', 'resize', 'layout'),
    [
        *((kind, 'bilinear', 'text') for kind in KINDS),
        *((kind, 'bilinear', 'code') for kind in (LinearReLUAdapter, *BLOCKS)),
        *((kind, 'strided', 'text') for kind in SPATIAL),
    ],
)
def test_adapter_chain_equals_one_by_hand(kind, resize, layout):
    adapter = build(kind, 6, 4, HOPS, resize=resize, layout=layout)
    nonlinear, block = kind in RELU, kind in BLOCKS and layout == 'code'
    x = torch.randn(2, 6, 5, 6)
    state = adapter.map_state(TokenState.of_map(x))
    # 5 rows of stride 4 are 20 pixels: 3 of stride 8 and 2 of stride 16.
    for parts, grid in zip(adapter.chain, [(3, 3), (2, 2)], strict=True):
        if resize == 'bilinear':
            x = F.interpolate(x, grid, mode='bilinear')
        x = x if block else normalised(x, parts['norm_in'])
        x = by_hand(kind, parts['adapt'], x)
        x = x.relu() if nonlinear and layout == 'text' else x
        x = x if block else normalised(x, parts['norm_out'])
        x = F.leaky_relu(x, 0.1) if nonlinear and layout == 'code' else x
    assert state.grid == (2, 2)
    assert_close(state.as_map(), x)


def test_strided_adapter_enlarges_grids_by_interpolation():
    """Then its convolution has a stride of 1, as in the authors' code."""
    strided = build(Conv3x3Adapter, 6, 16, [(8, 8), (8, 16)], resize='strided')
    first, second = (parts['adapt'] for parts in strided.chain)
    assert (first.stride, second.stride) == ((1, 1), (2, 2))
    x = torch.randn(2, 6, 3, 4)
    state = strided(TokenState.of_map(x))
    x = F.interpolate(x, (6, 8), mode='bilinear')
    for parts, adapt in zip(strided.chain, (first, second), strict=True):
        x = normalised(adapt(normalised(x, parts['norm_in'])).relu(), parts['norm_out'])
    assert state.grid == (3, 4)
    assert_close(state.as_map(), x)


@pytest.mark.parametrize('kind', [LinearAdapter, Conv3x3Adapter])
def test_adapter_takes_or_makes_cls_token(kind):
    """A cls token is concatenated to all others or made of their mean."""
    narrow, wide = (build(kind, dim, 4, HOPS) for dim in (6, 12))
    cls, patches = torch.randn(2, 1, 6), torch.randn(2, 30, 6)
    tokens = narrow(TokenState(patches, (5, 6))).tokens
    out = build(kind, 6, 4, HOPS, (0, 1))(TokenState(patches, (5, 6)))
    assert out.tokens[:, 1:].equal(tokens)
    assert_close(out.tokens[:, 0], tokens.mean(1))
    both = TokenState(torch.cat([cls, patches], dim=1), (5, 6))
    out = build(kind, 6, 4, HOPS, (1, 0))(both)
    doubled = torch.cat([patches, cls.repeat(1, 30, 1)], dim=2)
    assert out.grid == (2, 2)
    assert out.tokens.equal(wide(TokenState(doubled, (5, 6))).tokens)


def test_adapter_maps_equal_prefix_tokens_like_patches():
    adapter = build(LinearAdapter, 6, 8, [(8, 16)], (1, 1))
    alone = build(LinearAdapter, 6, 8, [(8, 16)])
    cls, patches = torch.randn(2, 1, 6), torch.randn(2, 16, 6)
    out = adapter(TokenState(torch.cat([cls, patches], dim=1), (4, 4))).tokens
    assert_close(out[:, 1:], alone(TokenState(patches, (4, 4))).tokens)
    alone.resize = 'none'
    assert_close(out[:, :1], alone(TokenState(cls, (1, 1))).tokens)


def test_adapter_of_code_normalises_vits_by_layer_norms():
    adapter = build(LinearReLUAdapter, 6, 16, [(8, 16)], (1, 1), layout='code')
    (parts,), x = adapter.chain, torch.randn(2, 5, 6)
    found = adapter(TokenState(x, (2, 2))).tokens
    x = F.layer_norm(x, (6,), parts['norm_in'].weight, parts['norm_in'].bias)
    x = F.linear(x, parts['adapt'].weight, parts['adapt'].bias)
    x = F.layer_norm(x, (8,), parts['norm_out'].weight, parts['norm_out'].bias)
    assert_close(found, F.leaky_relu(x, 0.1))


def test_bottleneck_adapter_begins_as_its_shortcut():
    """New weights have the fan of outputs."""
    torch.manual_seed(0)
    (parts,) = BottleneckAdapter(256, 8, [(256, 8)], layout='code').eval().chain
    x = torch.randn(1, 256, 3, 3)
    assert parts['adapt'](x).equal(x.relu())
    # The 3x3 convolution has 64 channels.
    std = parts['adapt'].branch[3].weight.std().item()
    assert std == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    (parts,) = LinearAdapter(64, 8, [(512, 8)]).chain
    assert parts['adapt'].weight.std().item() == pytest.approx(
        (2 / 512) ** 0.5, rel=0.02
    )
