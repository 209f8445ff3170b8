"""Routes, maps and gradients of plain anchors stitched one way and two ways."""

from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from states import states_on_route

from snnet_mm.models import SNNetv1, SNNetv2
from snnet_mm.stitching import TwoWaySpace

OUT_INDICES = (6, 0, 2, 3)
IMAGES = (2, 3, 16, 24)
WIDTHS = (8, 12, 16, 20)
ANCHORS = {
    'cls': dict(),
    'bias': dict(rel_pos_bias=True, final_norm=True, layer_scale_init=None),
    'registers': dict(num_registers=2, pos_embed_prefix=True),
    'no prefix': dict(cls_token=False),
    'windows': dict(
        cls_token=False, window_size=2, global_blocks=(1,), decomposed_rel_pos=True
    ),
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


def check_every_route(net, images):
    for stitch in net.space:
        net.set_stitch(stitch.id)
        wanted, found = maps_by_hand(net, stitch, images), net(images)
        for x, (feature_map, cls) in zip(found, wanted, strict=True):
            assert (x[0] if net.with_cls else x).equal(feature_map), stitch
            # Through the same stitching layers.
            assert not net.with_cls or x[1].equal(cls), stitch


@torch.no_grad()
@pytest.mark.parametrize(
    ('depths', 'anchor'),
    [*product([(3, 7)], ANCHORS), ((3, 3), 'cls'), ((2, 3, 4, 5), 'cls')],
)
def test_every_route_equals_its_blocks_composed(build_snnet, depths, anchor):
    last = depths[-1]
    settings = dict(anchor=ANCHORS[anchor], out_indices=range(-last, 0))
    net = build_snnet(depths, WIDTHS[: len(depths)], **settings)
    assert len(net.space) == len(depths) + sum(d * (d - 1) for d in depths[:-1])
    assert net.out_indices == tuple(range(last))
    net.with_cls = net.anchors[0].has_cls
    check_every_route(net, torch.randn(IMAGES))


@torch.no_grad()
@pytest.mark.parametrize('depths', [(3, 3), (2, 3, 5)])
def test_maps_of_end_anchors_equal_their_blocks_composed(build_snnet, depths):
    settings = dict(anchor=ANCHORS['registers'], out_indices=range(-depths[-1], 0))
    net = build_snnet(depths, WIDTHS[: len(depths)], maps_of='end', **settings)
    check_every_route(net, torch.randn(IMAGES))
    pairs = list(pairwise(range(len(depths))))
    ways = [(p, i) for p in pairs for i in range(depths[p[0]] - 1)]
    wanted = {f'{a}to{b}_{i}' for p, i in ways for a, b in (p, p[::-1])}
    # And one that nothing runs, which classifiers of the authors hold.
    wanted.add(f'{len(pairs) - 1}to{len(pairs)}_{depths[-2] - 1}')
    assert set(net.stitching_layers) == wanted


@torch.no_grad()
@pytest.mark.parametrize('direction', ['FS', 'SF'])
def test_one_way_is_a_part_of_two_ways(build_vit, randomise, direction):
    depths = 2, 3, 7
    anchors = [build_vit(*s) for s in zip(WIDTHS, depths, strict=False)]
    net = SNNetv1(anchors, direction=direction, out_indices=OUT_INDICES)
    wanted = [s for s in TwoWaySpace(depths) if s.kind in ('anchor', direction)]
    assert list(net.space) == wanted
    check_every_route(randomise(net), torch.randn(IMAGES))


@torch.no_grad()
def test_stages_of_plain_anchors_of_unequal_depth(build_vit, randomise):
    net = randomise(
        SNNetv1([build_vit(8, 2), build_vit(12, 5)], stages=(0,), out='end')
    )
    assert len(net.space) == 2 + 4
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        *_, expected = states_on_route(net, stitch, images).values()
        assert net(images).tokens.equal(expected.tokens)


@torch.no_grad()
def test_eval_maps_are_all_that_eval_mode_gives(build_snnet):
    net = build_snnet(out_indices=OUT_INDICES, eval_maps=(3, 1))
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        expected, found = net.train()(images), net.eval()(images)
        assert found[0] is found[2] is None
        assert all(found[j].equal(expected[j]) for j in (1, 3))


@torch.no_grad()
@pytest.mark.parametrize('direction', ['two ways', 'FS', 'SF'])
def test_out_end_is_the_final_state_of_the_end_anchor(
    build_snnet, build_vit, randomise, direction
):
    if direction == 'two ways':
        net = build_snnet((2, 3), WIDTHS[:2], out='end')
    else:
        settings = dict(out='end', nearest=False, direction=direction)
        anchors = [build_vit(width, 2) for width in WIDTHS[:3]]
        net = randomise(SNNetv1(anchors, **settings))
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        *_, expected = states_on_route(net, stitch, images).values()
        state = net(images)
        assert state.tokens.equal(expected.tokens)
        assert state.grid == (2, 3)


@torch.no_grad()
def test_slow_stitch_is_the_slow_anchor_bit_for_bit(build_snnet, build_vit):
    net = build_snnet(out_indices=OUT_INDICES, anchor=ANCHORS['bias']).eval()
    alone = build_vit(12, 7, out_indices=OUT_INDICES, **ANCHORS['bias']).eval()
    alone.load_state_dict(net.anchors[1].state_dict())
    images = torch.randn(IMAGES)
    net.set_stitch(1)
    for a, b in zip(net(images), alone(images), strict=True):
        assert a.equal(b)


def parts_on_route(stitch):
    """Names of blocks and layers that serve all slow blocks, for depths 3 and 7."""
    blocks = [(a, i) for a, begin, end in stitch.segments for i in range(begin, end)]
    served = {f'0to1_{i}' for a, i in blocks if a == 0}
    names = {f'anchors.{a}.blocks.{i}' for a, i in blocks}
    return names | {f'stitching_layers.{n}' for n in served.union(stitch.layers)}


def test_gradient_and_forward_reach_each_part_of_the_route_once(build_snnet):
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
        parts = parts_on_route(stitch)
        assert calls == dict.fromkeys(parts, 1)
        embedding = f'anchors.{stitch.segments[0].anchor}.'
        embedding = tuple(embedding + n for n in ('cls', 'pos', 'patch'))
        on_route = tuple(f'{n}.' for n in parts) + embedding
        for name, parameter in net.named_parameters():
            reached = parameter.grad is not None and bool(parameter.grad.any())
            trained = parameter.requires_grad and name.startswith(on_route)
            assert reached == trained, (stitch, name)


def vit(width=8, depth=2, **kwargs):
    arch = dict(embed_dims=width, depth=depth, num_heads=2)
    return dict(type='PlainViT', img_size=32, patch_size=8, arch=arch) | kwargs


THREE = [vit(depth=depth) for depth in (2, 3, 4)]
EQUAL = [vit(depth=3)] * 3


@pytest.mark.parametrize(
    ('kind', 'anchors', 'kwargs', 'message'),
    [
        (SNNetv1, EQUAL, {}, "out='maps' is invalid"),
        (SNNetv1, THREE, dict(direction='FSF'), "direction='FSF' is .*'FS', 'SF'"),
        (SNNetv1, THREE, dict(nearest=False), r'nearest=False is .*\(2, 3, 4\)'),
        (SNNetv1, EQUAL, dict(stitch_ids=[33]), 'stitch id 33 .* 0-16'),
        (SNNetv2, [vit(), vit(patch_size=16)], {}, r'patch_size=\(\(8,\), \(16,\)\)'),
        (SNNetv2, [vit(), vit(cls_token=False)], {}, '1 cls token.* .0 cls token'),
        (SNNetv2, [vit(12), vit()], {}, r'\(12, 8\) is invalid'),
        (SNNetv2, [vit(depth=5), vit(depth=4)], {}, r'anchors=\(5, 4\)'),
        (SNNetv2, THREE[1], {}, "anchors=.*'PlainViT'.*a list of the configs"),
        (SNNetv2, THREE, dict(out_indices=(3, 4)), r'\(3, 4\) is .* blocks -4 to 3'),
        (SNNetv2, THREE, dict(eval_maps=(1,)), r'=\(1,\) is invalid'),
    ],
)
def test_what_cannot_be_stitched_is_refused(kind, anchors, kwargs, message):
    layer = dict(stitching_layer=dict(type='StitchingLayer'))
    if kind is SNNetv1 and kwargs:
        layer['out'] = 'end'
    with pytest.raises(ValueError, match=message) as error:
        kind(anchors, **layer | kwargs)
    assert 'config key: ' in str(error.value)
