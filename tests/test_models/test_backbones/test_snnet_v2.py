import copy
import random
from collections import Counter

import numpy as np
import pytest
import torch
from states import states_on_route

OUT_INDICES = (6, 0, 2, 3)
IMAGES = (2, 3, 16, 24)


def served_by_hand(net, states, j):
    """Tokens of a slow block on a route, or of the faster block it belongs to."""
    depths = [anchor.depth for anchor in net.anchors]
    a, i = slowest, block = len(depths) - 1, j
    while (a, i) not in states:
        a, i = a - 1, i * depths[a - 1] // depths[a]
    if (a, i) == (slowest, block):
        return states[a, i].tokens
    return net.stitching_layers[f'{a}to{slowest}_{i}'](states[a, i].tokens)


def maps_by_hand(net, stitch, images):
    """The maps, 16x24 images in patches of 8, of the blocks that are wanted."""
    states, prefix = states_on_route(net, stitch, images), net.anchors[-1].num_prefix
    tokens = [served_by_hand(net, states, j)[:, prefix:] for j in net.out_indices]
    return [x.transpose(1, 2).unflatten(2, (2, 3)) for x in tokens]


ANCHORS = {
    'cls': dict(),
    'bias': dict(rel_pos_bias=True, final_norm=True, layer_scale_init=None),
    'registers': dict(num_registers=2, pos_embed_prefix=True),
    'no prefix': dict(cls_token=False),
    'windows': dict(
        cls_token=False, window_size=2, global_blocks=(1,), decomposed_rel_pos=True
    ),
}


def check_every_route(net, images):
    for stitch in net.space:
        net.set_stitch(stitch.id)
        expected = maps_by_hand(net, stitch, images)
        for feature_map, wanted in zip(net(images), expected, strict=True):
            assert feature_map.equal(wanted), stitch


@torch.no_grad()
@pytest.mark.parametrize('depths', [(3, 7), (4, 8), (2, 3, 7)])
@pytest.mark.parametrize('out_indices', [(-1,), OUT_INDICES, range(7)])
@pytest.mark.parametrize('anchor', ANCHORS)
def test_every_route_equals_its_blocks_composed(
    build_snnet, depths, out_indices, anchor
):
    widths = (8, 12, 16)[: len(depths)]
    net = build_snnet(depths, widths, ANCHORS[anchor], out_indices=out_indices)
    assert net.out_indices == tuple(j % depths[-1] for j in out_indices)
    check_every_route(net, torch.randn(IMAGES))


@torch.no_grad()
@pytest.mark.parametrize('depths', [(12, 40), (5, 12), (7, 7), (3, 5, 8), (2, 3, 4, 9)])
def test_routes_of_depths_that_do_not_divide(build_snnet, depths):
    widths, last = (4, 6, 8, 10)[: len(depths)], depths[-1]
    out_indices = (last // 4 - 1, last // 2, last - 2, last - 1)
    net = build_snnet(depths, widths, out_indices=out_indices)
    assert len(net.space) == len(depths) + sum(d * (d - 1) for d in depths[:-1])
    check_every_route(net, torch.randn(1, 3, 16, 24))


@torch.no_grad()
@pytest.mark.parametrize('depths', [(3, 7), (2, 3, 7)])
@pytest.mark.parametrize('anchor', ['cls', 'bias', 'registers'])
def test_the_cls_token_goes_through_the_same_stitching_layers(
    build_snnet, depths, anchor
):
    settings = dict(anchor=ANCHORS[anchor], out_indices=OUT_INDICES)
    net = build_snnet(depths, (8, 12, 16)[: len(depths)], with_cls=True, **settings)
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        net.with_cls = True
        pairs = net(images)
        net.with_cls = False
        for (feature_map, _), alone in zip(pairs, net(images), strict=True):
            assert feature_map.equal(alone)
        states = states_on_route(net, stitch, images)
        for j, (_, cls) in zip(OUT_INDICES, pairs, strict=True):
            expected = served_by_hand(net, states, j)
            assert cls.equal(expected[:, 0]), (stitch, j)


@torch.no_grad()
@pytest.mark.parametrize('eval_maps', [None, (0,), (3, 1)])
def test_eval_maps_are_all_that_eval_mode_gives(build_snnet, eval_maps):
    net = build_snnet(out_indices=OUT_INDICES, eval_maps=eval_maps)
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        expected = maps_by_hand(net, stitch, images)
        for a, b in zip(net.train()(images), expected, strict=True):
            assert a.equal(b)
        for j, (a, b) in enumerate(zip(net.eval()(images), expected, strict=True)):
            wanted = eval_maps is None or j in eval_maps
            assert a.equal(b) if wanted else a is None


@torch.no_grad()
@pytest.mark.parametrize('depths', [(3, 7), (2, 3, 7)])
@pytest.mark.parametrize('training', [True, False])
def test_out_end_is_the_final_state_of_the_end_anchor(build_snnet, depths, training):
    widths = (8, 12, 16)[: len(depths)]
    net = build_snnet(depths, widths, out='end').train(training)
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        state = net(images)
        *_, expected = states_on_route(net, stitch, images).values()
        assert state.tokens.equal(expected.tokens)
        assert state.tokens.shape[-1] == widths[stitch.end_anchor]
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


@torch.no_grad()
def test_no_block_or_stitching_layer_runs_twice_or_off_the_route(build_snnet):
    net = build_snnet(out_indices=range(7))
    calls = Counter()
    names = {m: n for n, m in net.named_modules()}
    layers = [*net.anchors[0].blocks, *net.anchors[1].blocks]
    for module in [*layers, *net.stitching_layers.values()]:
        module.register_forward_hook(lambda m, *_: calls.update([names[m]]))
    for stitch in net.space:
        net.set_stitch(stitch.id)
        calls.clear()
        net(torch.randn(IMAGES))
        assert set(calls.values()) == {1}
        assert set(calls) == parts_on_route(stitch)


def parts_on_route(stitch):
    """Names of blocks and layers that serve all slow blocks, for depths 3 and 7."""
    blocks = [(a, i) for a, begin, end in stitch.segments for i in range(begin, end)]
    served = {f'0to1_{i}' for a, i in blocks if a == 0}
    names = {f'anchors.{a}.blocks.{i}' for a, i in blocks}
    return names | {f'stitching_layers.{n}' for n in served.union(stitch.layers)}


@pytest.mark.parametrize('layer', ['StitchingLayer', 'LoRAStitchingLayer'])
def test_gradient_reaches_the_route_only(build_snnet, layer):
    cfg = dict(type=layer, **(dict(rank=2) if 'LoRA' in layer else {}))
    net = build_snnet(out_indices=range(7), stitching_layer=cfg)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        net.zero_grad()
        sum(m.square().sum() for m in net(torch.randn(IMAGES))).backward()
        embedding = f'anchors.{stitch.segments[0].anchor}.'
        embedding = tuple(embedding + n for n in ('cls', 'pos', 'patch'))
        on_route = tuple(f'{n}.' for n in parts_on_route(stitch)) + embedding
        for name, parameter in net.named_parameters():
            reached = parameter.grad is not None and bool(parameter.grad.any())
            trained = parameter.requires_grad and name.startswith(on_route)
            assert reached == trained, (stitch, name)


def random_states():
    numpy_state = np.random.get_state()[1].tolist()
    return torch.get_rng_state().tolist(), numpy_state, random.getstate()


@torch.no_grad()
@pytest.mark.parametrize('training', [True, False])
def test_without_drop_path_forward_draws_nothing(build_snnet, training):
    rate = 0 if training else 0.5
    net = build_snnet(anchor=dict(drop_path_rate=rate)).train(training)
    images = torch.randn(IMAGES)
    before = random_states()
    for stitch in net.space:
        net.set_stitch(stitch.id)
        assert net(images)[0].equal(net(images)[0])
        assert net.active_stitch is stitch
    assert random_states() == before


def test_the_active_stitch(build_snnet):
    assert build_snnet((2, 2, 2), (8, 12, 16)).active_stitch.id == 2
    net = build_snnet()
    net.set_stitch(5)
    other = copy.deepcopy(net)
    other.set_stitch(2)
    with pytest.raises(ValueError, match='id 4 .* 0-3, 5-8'):
        net.set_stitch(4)
    assert net.active_stitch.id == 5
