"""Narrow chains equal networks of small modules that timm and mm build themselves."""

from copy import copy, deepcopy
from math import prod

import pytest
import torch
from families import STAGED, of_every_kind
from staged_anchors import disturb
from timm import layers
from timm.models.swin_transformer import WindowAttention
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import TimmAnchor
from snnet_mm.costs import cost_table
from snnet_mm.models import ChainAnchor, ElasticBackbone
from snnet_mm.stitching import write_plan

pytest.importorskip('mmpretrain.models')

# How many parts of an input layer have rows of all units.
PARTS = dict(qkv=3, w12=2)
OUTPUTS = {'proj', 'fc2', 'w3'}


def make(part, dim, number, group):
    """Build a module of the same kind with a number of units."""
    kind = type(part).__name__
    if kind == 'WindowAttention':
        return WindowAttention(dim, number, group, part.window_size)
    if kind == 'AttentionWithRoPE':
        small = copy(part)
        small._modules = dict(part._modules)
        small.num_heads, width = number, number * group
        small.qkv, small.proj = nn.Linear(dim, 3 * width), nn.Linear(width, dim)
        return small
    if kind.endswith(('Attention', 'AttentionRope')):
        biased = 'qkv.bias' in weights_of(part)
        args = dict(attn_head_dim=group, qkv_bias=biased or part.qkv is None)
        if not isinstance(part.q_norm, nn.Identity):
            args |= dict(qk_norm=True, norm_layer=type(part.q_norm))
        if kind == 'Attention':
            return layers.Attention(dim, number, **args)
        # EVA's own does not run with fewer heads.
        args |= dict(qkv_fused=part.qkv is not None, rotate_half=part.rotate_half)
        args |= dict(num_prefix_tokens=part.num_prefix_tokens)
        return layers.AttentionRope(dim, number, **args)
    if kind == 'SwiGLUFFN':
        return type(part)(dim, number, add_identity=False)
    if kind == 'GluMlp':
        return layers.SwiGLUPacked(dim, 2 * number)
    if kind == 'GlobalResponseNormMlp':
        return type(part)(dim, number, use_conv=isinstance(part.fc1, nn.Conv2d))
    return type(part)(dim, number)


def weights_of(part):
    """Weights of a module, with biases of queries and values as those of one layer."""
    weights = dict(part.state_dict())
    if 'q_bias' in weights:
        q, v = weights.pop('q_bias'), weights.pop('v_bias')
        weights['qkv.bias'] = torch.cat([q, torch.zeros_like(q), v])
    elif 'q_proj.bias' in weights:
        zeros = torch.zeros_like(weights['q_proj.bias'])
        weights.setdefault('k_proj.bias', zeros)
    return weights


def small_part(branch, kept, layer):
    """Return the module of a branch with the kept units and another output layer."""
    part = getattr(branch, 'heads_of', None) or branch.neurons_of
    parts = dict(PARTS, fc1=2 if type(part).__name__ == 'GluMlp' else 1)
    small = make(part, layer.out_features, len(kept), branch.group)
    # Biases that the part lacks are zero.
    state = {name: torch.zeros_like(v) for name, v in small.state_dict().items()}
    for name, value in weights_of(part).items():
        first = name.split('.')[0]
        if first.endswith('_norm') or first == 'rope':
            state[name] = value
        elif name.endswith('_table'):
            state[name] = value[:, kept]
        elif first not in OUTPUTS:
            shape = parts.get(first, 1), branch.units, -1
            state[name] = value.unflatten(0, shape)[:, kept].flatten(0, 2)
    (name,) = OUTPUTS & {name for name, _ in small.named_children()}
    state[f'{name}.weight'] = layer.weight.view_as(state[f'{name}.weight'])
    state[f'{name}.bias'] = layer.bias
    small.load_state_dict(state)
    return small


def small_network(net):
    """The network of a chain, by the blocks' own forward."""
    anchor, space = deepcopy(net.anchors[0]), net.space
    for name, (step, units) in space.narrow.items():
        own = net.view.steps[step]
        kept = net.unit_orders[str(step)].index[:units]
        layer = net.stitching_layers[name]
        block = anchor.get_submodule(anchor.block_path(own.block))
        path = 'attn' if own.kind == 'attention' else 'mlp'
        setattr(block, path, small_part(own.branch, kept, layer))
        number = 1 if own.kind == 'attention' else 2
        for scale in ('gamma', f'gamma_{number}'):
            if hasattr(block, scale):
                setattr(block, scale, None)
        if hasattr(block, f'ls{number}'):
            setattr(block, f'ls{number}', nn.Identity())
    return anchor.eval()


EVA, VIT = 'vit_small_patch16_dinov3', 'vit_tiny_patch16_224'


@pytest.mark.parametrize(
    ('model', 'args', 'heads', 'neurons'),
    [
        (EVA, {}, True, True),
        (EVA, dict(qkv_fused=False, qk_norm=True), True, True),
        (EVA, dict(scale_attn_inner=True), False, True),
        (EVA, dict(scale_mlp=True, swiglu_mlp=True), True, False),
        (EVA, dict(attn_type='rope', qkv_fused=False, num_kv_heads=1), False, True),
        ('vit_small_patch16_rope_mixed_224', {}, False, True),
        (VIT, dict(qk_norm=True), True, True),
        (VIT, dict(scale_attn_norm=True, scale_mlp_norm=True), False, False),
        (VIT, dict(attn_layer='diff'), False, True),
        (VIT, dict(mlp_layer=layers.GluMlp), True, False),  # other halves
        (VIT, dict(mlp_layer=layers.SwiGLUPacked), True, True),
        (VIT, dict(mlp_layer=layers.ConvMlp), True, False),  # of no layout
    ],
)
def test_branches_with_other_modules_run_whole(model, args, heads, neurons):
    args = dict(embed_dim=24, depth=1, num_heads=3) | args
    attention, mlp = TimmAnchor(model, img_size=32, model_args=args).branches(0)
    assert (attention.units > 1, mlp.units > 1) == (heads, neurons)


@pytest.fixture(params=of_every_kind())
def net(request):
    """A network with a chain of about half of all units."""
    torch.manual_seed(0)
    config = request.param
    view = ElasticBackbone([deepcopy(config)], []).view
    plan = tuple((width + 1) // 2 for width in view.widths)
    widths = zip(view.widths, view.steps, strict=True)
    assert all(width > 1 or step.kind in ('enter', 'norm') for width, step in widths)
    net = ElasticBackbone([deepcopy(config)], [write_plan(plan, view.blocks)])
    with torch.no_grad():
        disturb(net)
        for order in net.unit_orders.values():
            order.index.copy_(torch.randperm(len(order.index)))
    return net.eval()


@torch.no_grad()
def test_chain_equals_network_of_small_modules(net):
    images = torch.randn(2, 3, 64, 64)
    net.set_stitch(1)
    found, wanted = (tree_leaves(run(images)) for run in (net, small_network(net)))
    net.set_stitch(0)
    for a, b, whole in zip(found, wanted, tree_leaves(net(images)), strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert (a - whole).abs().max() > 0.01


def flops_by_hand(branch, units, dim, grid, prefix):
    """Multiply-accumulates of a branch with some of its units."""
    tokens, width = prod(grid) + prefix, units * branch.group
    if branch.kind == 'mlp':
        inputs = 1 + bool(branch.layout.factor or branch.layout.packed)
        return tokens * dim * width * (inputs + 1)
    read = seen = tokens
    if windows := branch.windows(grid):
        read = prod(n + -n % side for n, side in zip(grid, windows.size, strict=True))
        seen = prod(windows.size)
    # A narrow branch projects tokens without the padding of windows.
    left = read if units == branch.units else tokens
    return width * (read * (3 * dim + 2 * seen) + left * dim)


def test_chain_has_flops_of_closed_form(net):
    table, view = cost_table(net, (64, 64)), net.view
    saved = 0
    for i, step in enumerate(view.steps):
        if step.branch is not None:
            grid = (64 // view.block_strides[i],) * 2
            args = view.block_dims[i], grid, view.num_prefix
            units = step.branch.units
            saved += flops_by_hand(step.branch, units, *args)
            saved -= flops_by_hand(step.branch, (units + 1) // 2, *args)
    assert table[0].flops - table[1].flops == saved
    assert saved > table[0].flops / 10


@torch.no_grad()
@pytest.mark.parametrize('name', ['swin', 'swin_padded', 'convnext'])
def test_chain_of_stages_is_fixed_to_a_size(name):
    """With blocks that are whole, narrow and without attention or MLP."""
    whole = STAGED[name]
    chain = '2:0/8 3:1/0 4:0/9' if 'swin' in name else '1:0 2:9'
    anchor = disturb(ChainAnchor(deepcopy(whole), chain)).eval()
    images = torch.randn(2, 3, 72, 96)
    (before,) = anchor(images)
    anchor.fix_input_size((72, 96))
    assert_close(anchor(images), (before,), rtol=1e-5, atol=1e-5)
