"""Routes, maps and gradients of plain anchors stitched one way and two ways."""

from collections import Counter
from functools import partial
from itertools import pairwise, product

import pytest
import torch
from small import small
from states import states_on_route

from snnet_mm.models import SNNetv1, SNNetv2

OUT_INDICES = (6, 0, 2, 3)
IMAGES = (2, 3, 16, 24)
WIDTHS = (8, 12, 16, 20)
WINDOWS = dict(window_size=2, global_blocks=(1,), decomposed_rel_pos=True)
ANCHORS = {
    'cls': dict(),
    'bias': dict(rel_pos_bias=True, final_norm=True, layer_scale_init=None),
    'registers': dict(num_registers=2, pos_embed_prefix=True),
    'windows': dict(cls_token=False) | WINDOWS,
}


def served_by_hand(net, states, stitch, j):
    """Tokens of the map's anchor at a slow block, or of another that ran there."""
    depths, below = [anchor.depth for anchor in net.anchors], [j]
    for slow, fast in pairwise(reversed(depths)):
        below.insert(0, below[0] * fast // slow)
    last = len(depths) - 1
    to = stitch.end_anchor if net.maps_of == 'end' else last
    if to < last:  # from a slower anchor, the last block that belongs to the fast one
        i, n = below[to], depths[to + 1]
        below[to + 1] = max(k for k in range(n) if k * depths[to] // n == i)
    a = next(a for a in (to, *range(last, -1, -1)) if (a, below[a]) in states)
    tokens, name = states[a, below[a]].tokens, f'{a}to{to}_{below[min(a, to)]}'
    return tokens if a == to else net.stitching_layers[name](tokens)


def maps_by_hand(net, stitch, images):
    """Maps, 16x24 images in patches of 8, and cls tokens of the blocks wanted."""
    states, prefix = states_on_route(net, stitch, images), net.anchors[-1].num_prefix
    tokens = [served_by_hand(net, states, stitch, j) for j in net.out_indices]
    maps = [x[:, prefix:].transpose(1, 2).unflatten(2, (2, 3)) for x in tokens]
    return list(zip(maps, [x[:, 0] for x in tokens], strict=True))


@torch.no_grad()
@pytest.mark.parametrize(
    ('depths', 'anchor', 'maps_of'),
    [
        *product([(3, 7)], ANCHORS, ['slowest']),
        *product([(3, 3), (2, 3, 4, 5)], ['cls'], ['slowest']),
        *product([(3, 3), (2, 3, 5)], ['registers'], ['end']),
    ],
)
def test_snnet_every_route_equals_its_blocks_composed(
    build_snnet, depths, anchor, maps_of
):
    settings = dict(out_indices=range(-depths[-1], 0), maps_of=maps_of)
    widths = WIDTHS[: len(depths)]
    net = build_snnet(depths, widths, ANCHORS[anchor], **settings)
    net.with_cls, images = net.anchors[0].has_cls, torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        wanted, found = maps_by_hand(net, stitch, images), net(images)
        for x, (feature_map, cls) in zip(found, wanted, strict=True):
            assert (x[0] if net.with_cls else x).equal(feature_map), stitch
            # Through the same stitching layers.
            assert not net.with_cls or x[1].equal(cls), stitch


@torch.no_grad()
@pytest.mark.parametrize(
    ('kind', 'depths', 'kwargs'),
    [
        (SNNetv2, (2, 3), {}),
        (SNNetv1, (2, 2, 2), dict(nearest=False)),
        (SNNetv1, (2, 2, 2), dict(nearest=False, direction='SF')),
        (SNNetv1, (2, 5), dict(stages=(0,))),
        (SNNetv1, (2, 3, 7), dict(direction='SF')),
    ],
)
def test_snnet_out_end_is_state_of_end_anchor(
    build_vit, randomise, kind, depths, kwargs
):
    anchors = [build_vit(*s) for s in zip(WIDTHS, depths, strict=False)]
    kwargs = dict(stitching_layer=dict(type='StitchingLayer'), out='end') | kwargs
    net, images = randomise(kind(anchors, **kwargs)), torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        *_, expected = states_on_route(net, stitch, images).values()
        state = net(images)
        assert state.tokens.equal(expected.tokens)
        assert state.grid == (2, 3)


@torch.no_grad()
def test_snnet_slow_stitch_and_eval_maps(build_snnet):
    """The slow stitch is the slow anchor, and in eval mode it makes some maps alone."""
    settings = dict(out_indices=OUT_INDICES, eval_maps=(3, 1))
    net, images = build_snnet(anchor=ANCHORS['bias'], **settings), torch.randn(IMAGES)
    net.anchors[1].out_indices = OUT_INDICES
    wanted = net.anchors[1](images)
    net.set_stitch(1)
    assert all(a.equal(b) for a, b in zip(net.train()(images), wanted, strict=True))
    found = net.eval()(images)
    assert found[0] is found[2] is None
    assert all(found[j].equal(wanted[j]) for j in (1, 3))


def test_snnet_gradient_and_forward_reach_route_once(build_snnet):
    net = build_snnet(out_indices=range(7))
    calls, names = Counter(), {m: n for n, m in net.named_modules()}
    blocks = [*net.anchors[0].blocks, *net.anchors[1].blocks]
    for module in [*blocks, *net.stitching_layers.values()]:
        module.register_forward_hook(lambda m, *_: calls.update([names[m]]))
    for stitch in net.space:
        net.set_stitch(stitch.id)
        net.zero_grad()
        calls.clear()
        sum(m.square().sum() for m in net(torch.randn(IMAGES))).backward()
        run = [(a, i) for a, begin, end in stitch.segments for i in range(begin, end)]
        layers = {f'0to1_{i}' for a, i in run if a == 0}.union(stitch.layers)
        parts = [f'anchors.{a}.blocks.{i}' for a, i in run]
        parts += [f'stitching_layers.{name}' for name in layers]
        assert calls == dict.fromkeys(parts, 1)
        embedding = f'anchors.{stitch.segments[0].anchor}.'
        embedding = tuple(embedding + n for n in ('cls', 'pos', 'patch'))
        on_route = tuple(f'{n}.' for n in parts) + embedding
        for name, parameter in net.named_parameters():
            reached = parameter.grad is not None and bool(parameter.grad.any())
            trained = parameter.requires_grad and name.startswith(on_route)
            assert reached == trained, (stitch, name)


vit = partial(small, 'vit')
THREE = [vit(depth=depth) for depth in (2, 3, 4)]
EQUAL = [vit(depth=3)] * 3


@pytest.mark.parametrize(
    ('kind', 'anchors', 'kwargs', 'message'),
    [
        (SNNetv1, EQUAL, {}, "out='maps' is invalid"),
        (SNNetv1, EQUAL, dict(stages=(0,)), r'backbone\.stages'),
        (SNNetv1, THREE, dict(direction='FSF'), r'backbone\.direction'),
        (SNNetv1, THREE, dict(nearest=False), r'backbone\.nearest'),
        (SNNetv1, THREE, dict(stitching_layer=None), r'backbone\.stitching_layer'),
        (SNNetv2, [vit(), vit(patch_size=16)], {}, r'anchors\.patch_size'),
        (SNNetv2, [vit(), vit(cls_token=False)], {}, r'anchors\.num_registers'),
        (SNNetv2, [vit(), vit(in_channels=4)], {}, r'anchors\.in_channels'),
        (SNNetv2, [vit(12), vit()], {}, r'backbone\.anchors'),
        (SNNetv2, [vit(depth=5), vit(depth=4)], {}, r'anchors=\(5, 4\)'),
        (SNNetv2, THREE[1], {}, "anchors=.*'PlainViT'"),
        (SNNetv2, THREE, dict(out_indices=(3, 4)), 'out_indices'),
        (SNNetv2, THREE, dict(eval_maps=(1,)), r'backbone\.eval_maps'),
        (SNNetv2, THREE, dict(maps_of='fastest'), r'backbone\.maps_of'),
    ],
)
def test_snnet_what_cannot_be_stitched_is_refused(kind, anchors, kwargs, message):
    with pytest.raises(ValueError, match=message):
        kind(anchors, **kwargs)
