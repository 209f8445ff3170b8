from itertools import combinations, pairwise

import pytest

from snnet_mm.stitching import Position, TwoWaySpace

FAST, SLOW = 0, 1
DEPTHS = [(12, 24), (5, 12), (7, 7), (24, 40), (1, 1), (1, 5)]
# Depths of three anchors or more, with the number of their stitches.
CHAINS = {
    (12, 12, 24): 267,
    (5, 12, 40): 3 + 5 * 4 + 12 * 11,
    (2, 3, 4, 9): 4 + 2 + 6 + 12,
    (1, 1, 4): 3,
}
# Whether each joint leads to a slower anchor.
KINDS = {('anchor',), ('FS', True), ('SF', False)}
KINDS |= {('SFS', False, True), ('FSF', True, False)}


def last_slow_block(i, depths):
    """e(i) of the design, searched for by nearest interpolation m(j)."""
    return max(j for j in range(depths[1]) if j * depths[0] // depths[1] == i)


@pytest.mark.parametrize('depths', DEPTHS)
def test_two_way_space_every_route_by_id(depths):
    d1, d2 = depths
    e = [last_slow_block(i, depths) for i in range(d1)]
    expected = {0: ('anchor', ((0, 0, d1),)), 1: ('anchor', ((1, 0, d2),))}
    for i in range(d1 - 1):
        expected[2 + i] = 'FS', ((0, 0, i + 1), (1, e[i] + 1, d2))
        expected[2 + d1 + i] = 'SF', ((1, 0, e[i] + 1), (0, i + 1, d1))
    pairs = list(combinations(range(d1 - 1), 2))
    for n, (a, b) in enumerate(pairs, start=2 * d1 + 1):
        sfs = (1, 0, e[a] + 1), (0, a + 1, b + 1), (1, e[b] + 1, d2)
        fsf = (0, 0, a + 1), (1, e[a] + 1, e[b] + 1), (0, b + 1, d1)
        expected |= {n: ('SFS', sfs), n + len(pairs): ('FSF', fsf)}
    space = TwoWaySpace(depths)
    assert {s.id: (s.kind, s.segments) for s in space} == expected
    layers = {}
    for i in range(d1):
        fast, slow = Position(FAST, i), Position(SLOW, e[i])
        layers |= {f'0to1_{i}': (fast, slow), f'1to0_{i}': (slow, fast)}
    del layers[f'1to0_{d1 - 1}']
    assert space.layers == layers
    assert space.anchor_ids == (0, 1)


@pytest.mark.parametrize('depths', [*DEPTHS, *CHAINS])
def test_two_way_space_layers_join_changing_blocks(depths):
    space = TwoWaySpace(depths)
    number = len(depths) + sum(d * (d - 1) for d in depths[:-1])
    assert len(space) == CHAINS.get(depths, number) == number
    for stitch in space:
        joints = list(pairwise(stitch.segments))
        assert (stitch.kind, *(a < b for (a, *_), (b, *_) in joints)) in KINDS
        ends = [((a, i - 1), (b, j - 1)) for (a, _, i), (b, j, _) in joints]
        assert [space.layers[name] for name in stitch.layers] == ends


@pytest.mark.parametrize('depths', [*DEPTHS, *CHAINS])
def test_two_way_space_layers_of_maps(depths):
    """Layers of maps are fitted to the last block that they serve."""
    space, slowest = TwoWaySpace(depths), len(depths) - 1
    last = {}
    for j in range(depths[-1]):
        own, *substitutes = space.map_sources(j, slowest)
        assert own == ((slowest, j), None)
        last |= dict.fromkeys(substitutes, j)
    assert len(last) == sum(depths[:-1])
    for (position, layer), j in last.items():
        assert layer == f'{position.anchor}to{slowest}_{position.block}'
        assert space.layers[layer] == (position, (slowest, j))


def test_two_way_space_layers_of_end_maps():
    layers = TwoWaySpace((3, 7), ('FS',), end_maps=True).layers
    assert list(layers) == ['0to1_0', '0to1_1', '0to1_2']
