import re
from itertools import combinations, pairwise

import pytest

from snnet_mm.stitching import Position, StitchingLayerSpec, TwoWaySpace

FAST, SLOW = 0, 1
DEPTHS = [
    *[(12, d2) for d2 in (12, 24, 36, 40)],
    *[(6, 12), (5, 12), (7, 7), (24, 40), (3, 7), (2, 5), (1, 1), (1, 5)],
]
# Three anchors or more, each with the number of its stitches.
CHAINS = {
    (12, 12, 24): 267,
    (12, 24, 40): 3 + 12 * 11 + 24 * 23,
    (5, 12, 40): 3 + 5 * 4 + 12 * 11,
    (7, 7, 7): 3 + 7 * 6 + 7 * 6,
    (2, 3, 4, 9): 4 + 2 + 6 + 12,
    (1, 1, 4): 3,
}


def fast_block_of(j, depths):
    """m(j) of the design: nearest interpolation."""
    return j * depths[0] // depths[1]


def last_slow_block(i, depths):
    """e(i) of the design, searched for."""
    return max(j for j in range(depths[1]) if fast_block_of(j, depths) == i)


def test_routes_and_ids_are_those_of_the_authors(golden):
    space = TwoWaySpace(golden.meta['depths'])
    routes = {int(k): v for k, v in golden.meta['routes'].items() if k != '13'}
    assert list(space.ids) == golden.meta['stitch_ids'] == sorted(routes)
    for i, theirs in routes.items():
        stitch = space[i]
        anchors = theirs['comb']
        assert [s.anchor for s in stitch.segments] == anchors
        if len(anchors) == 1:
            assert stitch.segments == ((anchors[0], 0, space.depths[anchors[0]]),)
            continue
        # They name the last block before a joint, we the first after it.
        ends = [end + 1 for _, end in theirs['route'][:-1]] + [theirs['route'][-1][1]]
        begins = [begin for begin, _ in theirs['route']]
        assert [s[1:] for s in stitch.segments] == list(zip(begins, ends, strict=True))
        *boundaries, identity = theirs['layers']
        assert identity == -1
        assert list(stitch.layers) == [
            f'{a}to{1 - a}_{i}' for a, i in zip(anchors[:-1], boundaries, strict=True)
        ]


def test_number_of_stitches_in_the_paper():
    assert len(TwoWaySpace((12, 24))) == len(TwoWaySpace((12, 12))) == 134


@pytest.mark.parametrize('depths', DEPTHS)
def test_every_route_by_its_id(depths):
    d1, d2 = depths
    e = [last_slow_block(i, depths) for i in range(d1)]
    expected = {0: ('anchor', ((0, 0, d1),)), 1: ('anchor', ((1, 0, d2),))}
    for i in range(d1 - 1):
        expected[2 + i] = 'FS', ((0, 0, i + 1), (1, e[i] + 1, d2))
        expected[2 + d1 + i] = 'SF', ((1, 0, e[i] + 1), (0, i + 1, d1))
    pairs = list(combinations(range(d1 - 1), 2))
    first_sfs = 2 * d1 + 1
    for n, (a, b) in enumerate(pairs, start=first_sfs):
        segments = (1, 0, e[a] + 1), (0, a + 1, b + 1), (1, e[b] + 1, d2)
        expected[n] = 'SFS', segments
    for n, (a, b) in enumerate(pairs, start=first_sfs + len(pairs)):
        segments = (0, 0, a + 1), (1, e[a] + 1, e[b] + 1), (0, b + 1, d1)
        expected[n] = 'FSF', segments
    space = TwoWaySpace(depths)
    assert {s.id: (s.kind, s.segments) for s in space} == expected
    assert space.anchor_ids == (0, 1)
    for stitch in space:
        ends_fast = stitch.kind.endswith('F') or stitch.id == 0
        assert stitch.end_anchor == (FAST if ends_fast else SLOW)
        joints = zip(stitch.layers, pairwise(stitch.segments), strict=True)
        for name, (before, after) in joints:
            source, target = space.layers[name]
            assert source == (before.anchor, before.end - 1)
            assert target == (after.anchor, after.begin - 1)


@pytest.mark.parametrize('depths', DEPTHS)
def test_what_stitching_layers_map(depths):
    d1 = depths[0]
    expected = {}
    for i in range(d1):
        fast, slow = Position(FAST, i), Position(SLOW, last_slow_block(i, depths))
        expected[f'0to1_{i}'] = StitchingLayerSpec(fast, slow)
        if i < d1 - 1:
            expected[f'1to0_{i}'] = StitchingLayerSpec(slow, fast)
    assert TwoWaySpace(depths).layers == expected


@pytest.mark.parametrize(
    ('stitch_id', 'text'),
    [
        (0, 'fast[0:12]'),
        (5, 'fast[0:4] > slow[8:24]'),
        (24, 'slow[0:22] > fast[11:12]'),
        (134, 'fast[0:10] > slow[20:22] > fast[11:12]'),
    ],
)
def test_routes_for_people(stitch_id, text):
    space = TwoWaySpace((12, 24))
    assert space.describe(space[stitch_id]) == text


@pytest.mark.parametrize('depths', CHAINS)
def test_a_chain_is_the_spaces_of_its_pairs_one_after_the_other(depths):
    k = len(depths)
    expected = {a: ('anchor', ((a, 0, depths[a]),), ()) for a in range(k)}
    layers, first_id = {}, k
    for fast, pair in enumerate(pairwise(depths)):
        alone = TwoWaySpace(pair)
        for stitch in list(alone)[2:]:
            expected[first_id + stitch.id - 2] = (
                stitch.kind,
                tuple((fast + a, begin, end) for a, begin, end in stitch.segments),
                tuple(shifted(name, fast) for name in stitch.layers),
            )
        layers |= {
            shifted(name, fast): tuple((fast + p.anchor, p.block) for p in spec)
            for name, spec in alone.layers.items()
        }
        # One id of the pair stays free: FS after its last fast block.
        first_id += pair[0] * (pair[0] - 1) + 1
    space = TwoWaySpace(depths)
    assert {s.id: (s.kind, s.segments, s.layers) for s in space} == expected
    assert len(space) == k + sum(d * (d - 1) for d in depths[:-1]) == CHAINS[depths]
    assert space.anchor_ids == tuple(range(k))
    # What serves nothing is not there: the last FS layer of a pair, but for the last.
    for a in range(k - 2):
        del layers[f'{a}to{a + 1}_{depths[a] - 1}']
    of_pairs = {n: s for n, s in space.layers.items() if n in layers}
    assert of_pairs == layers


def shifted(name, by):
    """The name of a stitching layer between anchors further up a chain."""
    a, rest = name.split('to')
    b, i = rest.split('_')
    return f'{int(a) + by}to{int(b) + by}_{i}'


@pytest.mark.parametrize('depths', [*DEPTHS, *CHAINS])
def test_every_route_runs_a_block_or_one_of_its_substitutes(depths):
    space, slowest = TwoWaySpace(depths), len(depths) - 1
    served = {}
    for j in range(depths[-1]):
        substitutes = space.substitutes(j)
        block = j
        for a, (position, layer) in zip(
            reversed(range(slowest)), substitutes, strict=True
        ):
            block = fast_block_of(block, depths[a : a + 2])
            assert position == (a, block)
            assert layer == f'{a}to{slowest}_{block}'
            served.setdefault((position, layer), []).append(j)
        for stitch in space:
            sources = [Position(slowest, j), *(p for p, _ in substitutes)]
            assert sum(map(stitch.runs, sources)) == 1
    assert len(served) == sum(depths[:-1])
    for (position, layer), blocks in served.items():
        # Fitted to the last of the blocks that it serves.
        assert space.layers[layer] == (position, (slowest, max(blocks)))
        assert blocks == list(range(blocks[0], blocks[-1] + 1))


@pytest.mark.parametrize('depths', [(3, 7), (3, 4, 9)])
def test_without_maps_there_are_the_layers_of_routes_alone(depths):
    for kinds in (('FS', 'SF', 'SFS', 'FSF'), ('FS',), ('SF',)):
        whole = TwoWaySpace(depths, kinds)
        space = TwoWaySpace(depths, kinds, maps=False)
        assert list(space) == list(whole)
        assert space.fingerprint == whole.fingerprint
        used = {name for stitch in space for name in stitch.layers}
        if 'FS' in kinds:
            # The authors' classifiers hold this one.
            a, b = len(depths) - 2, len(depths) - 1
            used.add(f'{a}to{b}_{depths[a] - 1}')
        assert set(space.layers) == used
        with pytest.raises(ValueError, match="allowed: 'end', as a TwoWaySpace"):
            space.substitutes(0)


def test_kinds_and_ids_of_a_chain_keep_their_numbers():
    whole = TwoWaySpace((3, 4, 9))
    # 3 anchors; 3-4 FS, 5 free, 6-7 SF, 8 SFS, 9 FSF; 10-12 FS, 13 free, ...
    assert whole.ids == (*range(5), *range(6, 13), *range(14, 23))
    space = TwoWaySpace((3, 4, 9), kinds=('SF', 'FSF'), ids=[6, 9, 15])
    assert space.ids == (0, 1, 2, 6, 9, 15)
    assert [space[i] for i in space.ids] == [whole[i] for i in space.ids]
    assert whole.describe(whole[9]) == 'anchor0[0:1] > anchor1[2:3] > anchor0[2:3]'
    assert whole.describe(whole[15]) == 'anchor2[0:5] > anchor1[2:4]'
    for wrong in (5, 13, 23):
        with pytest.raises(ValueError, match=r'allowed are 0-4, 6-12, 14-22 \('):
            whole[wrong]


@pytest.mark.parametrize('depths', [(6, 12), (12, 12), (3, 7), (24, 40)])
def test_kinds_can_be_switched_off(depths):
    whole = TwoWaySpace(depths)
    space = TwoWaySpace(depths, kinds=('FS', 'SF', 'FSF'))
    assert {s.kind for s in space} == {'anchor', 'FS', 'SF', 'FSF'}
    assert list(space) == [s for s in whole if s.kind != 'SFS']
    fast_to_slow = TwoWaySpace(depths, kinds=('FS',))
    assert len(fast_to_slow) == depths[0] + 1
    assert all(name.startswith('0to1') for name in fast_to_slow.layers)
    assert len(fast_to_slow.layers) == depths[0]


@pytest.mark.parametrize(
    ('depths', 'settings', 'words'),
    [
        *[
            (d, {}, f'anchors={re.escape(str(d))}; .*config key: backbone.anchors')
            for d in [(24, 12), (12,), (3, 5, 4), (5, 3, 4), (), (0, 5), (-1, 2)]
        ],
        ((3, 6), dict(kinds=('FS', 'SS')), "kinds=.*'SS'.*allowed: 'FS', 'SF', 'SFS'"),
        # FS after the last fast block keeps its number and is no stitch.
        ((3, 6), dict(ids=[2, 4]), r'stitch id 4 is not .* 0-3, 5-8 .*stitch_ids'),
    ],
)
def test_spaces_there_cannot_be(depths, settings, words):
    with pytest.raises(ValueError, match=words):
        TwoWaySpace(depths, **settings)
