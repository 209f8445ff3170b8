from itertools import combinations, pairwise

import pytest

from snnet_mm.stitching import (
    Position,
    Segment,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
    TwoWaySpace,
)

FAST, SLOW = 0, 1
DEPTHS = [
    (6, 12),
    (12, 12),
    (12, 24),
    (12, 36),
    (12, 40),
    (24, 24),
    (24, 40),
    (3, 7),
    (2, 5),
    (1, 1),
    (1, 5),
]


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
        # They name the last block in front of a joint, we the first behind it.
        ends = [end + 1 for _, end in theirs['route'][:-1]] + [theirs['route'][-1][1]]
        begins = [begin for begin, _ in theirs['route']]
        assert [s[1:] for s in stitch.segments] == list(zip(begins, ends, strict=True))
        *boundaries, identity = theirs['layers']
        assert identity == -1
        assert list(stitch.layers) == [
            f'{a}to{1 - a}_{i}' for a, i in zip(anchors[:-1], boundaries, strict=True)
        ]


@pytest.mark.parametrize('depths', DEPTHS)
def test_number_of_stitches(depths):
    d1 = depths[0]
    space = TwoWaySpace(depths)
    assert len(space) == len(list(space)) == 2 + 2 * (d1 - 1) + (d1 - 1) * (d1 - 2)


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
    assert {s.id: (s.kind, s.segments) for s in TwoWaySpace(depths)} == expected


@pytest.mark.parametrize('depths', DEPTHS)
def test_a_route_never_repeats_or_skips_depth(depths):
    for stitch in TwoWaySpace(depths):
        passed = [
            i if s.anchor == FAST else fast_block_of(i, depths)
            for s in stitch.segments
            for i in range(s.begin, s.end)
        ]
        assert sorted(passed) == passed
        assert set(passed) == set(range(depths[0]))
        for before, behind in pairwise(stitch.segments):
            last, first = (
                i if s.anchor == FAST else fast_block_of(i, depths)
                for s, i in ((before, before.end - 1), (behind, behind.begin))
            )
            assert first == last + 1


@pytest.mark.parametrize('depths', DEPTHS)
def test_every_slow_block_is_run_or_stood_in_for(depths):
    space = TwoWaySpace(depths)
    for j in range(depths[1]):
        position, layer = space.stand_in(j)
        assert position == (FAST, fast_block_of(j, depths))
        assert space.layers[layer].source == position
        assert space.layers[layer].target.anchor == SLOW
        for stitch in space:
            assert stitch.runs(Position(SLOW, j)) != stitch.runs(position)


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


@pytest.mark.parametrize('depths', DEPTHS)
def test_a_stitching_layer_leaves_where_the_segment_ends(depths):
    space = TwoWaySpace(depths)
    for stitch in space:
        assert len(stitch.layers) == len(stitch.segments) - 1
        joints = zip(stitch.layers, pairwise(stitch.segments), strict=True)
        for name, (before, behind) in joints:
            source, target = space.layers[name]
            assert source == (before.anchor, before.end - 1)
            assert target == (behind.anchor, behind.begin - 1)


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


def test_end_anchor_and_anchor_ids():
    space = TwoWaySpace((3, 7))
    assert space.anchor_ids == (0, 1)
    for stitch in space:
        ends_fast = stitch.kind.endswith('F') or stitch.id == 0
        assert stitch.end_anchor == (FAST if ends_fast else SLOW)


@pytest.mark.parametrize('wrong', [13, 135, -1, '5', None])
def test_unknown_id_is_refused(wrong):
    with pytest.raises(ValueError, match=r'allowed are 0-12, 14-134$') as error:
        TwoWaySpace((12, 24))[wrong]
    assert f'stitch id {wrong!r} ' in str(error.value)


@pytest.mark.parametrize('depths', DEPTHS)
def test_the_id_of_the_degenerate_stitch_stays_free(depths):
    space = TwoWaySpace(depths)
    assert depths[0] + 1 not in space.ids
    with pytest.raises(ValueError, match=f'stitch id {depths[0] + 1} '):
        space[depths[0] + 1]


@pytest.mark.parametrize('depths', [(24, 12), (12,), (3, 4, 5), (0, 5), (-1, 2)])
def test_depths_that_cannot_be_stitched(depths):
    with pytest.raises(ValueError, match='config key: anchors') as error:
        TwoWaySpace(depths)
    assert str(tuple(depths)) in str(error.value)


@pytest.mark.parametrize(
    ('segments', 'layers', 'message'),
    [
        ([], [], 'runs no block'),
        ([(2, 0, 3)], [], 'there are 2 anchors'),
        ([(0, 0, 4)], [], 'anchor 0, whose depth is 3'),
        ([(0, 0, 0), (1, 0, 5)], ['ab'], r'\[0, 0\) is not a run'),
        ([(1, -1, 5)], [], r'\[-1, 5\) is not a run'),
        ([(0, 0, 1), (0, 1, 3)], ['ab'], 'does not change the anchor'),
        ([(0, 1, 3)], [], 'not from a first to a last block'),
        ([(0, 0, 1), (1, 2, 4)], ['ab'], 'not from a first to a last block'),
        ([(0, 0, 1), (1, 2, 5)], [], r'stitching layers \(\)'),
        ([(0, 0, 1), (1, 2, 5)], ['ba'], "stitching layer 'ba'; there are .'ab'"),
    ],
)
def test_routes_that_cannot_be_run(segments, layers, message):
    stitch = Stitch(7, 'FS', tuple(Segment(*s) for s in segments), tuple(layers))
    specs = {'ab': StitchingLayerSpec(Position(0, 0), Position(1, 1))}
    with pytest.raises(ValueError, match=message) as error:
        StitchingSpace((3, 5), [stitch], specs)
    assert 'stitch 7' in str(error.value)


def test_an_id_belongs_to_one_stitch():
    stitches = [Stitch(4, 'anchor', (Segment(a, 0, 3),)) for a in (0, 1)]
    with pytest.raises(ValueError, match='share an id'):
        StitchingSpace((3, 3), stitches, {})


def test_stitches_come_in_the_order_of_their_ids():
    stitches = [Stitch(i, 'anchor', (Segment(0, 0, 3),)) for i in (9, 2, 5)]
    assert StitchingSpace((3,), stitches, {}).ids == (2, 5, 9)
