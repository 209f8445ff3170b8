import re

import pytest

from snnet_mm.stitching import Position, SlidingWindowSpace


def joints(stitch):
    pairs = zip(stitch.segments, stitch.segments[1:], strict=False)
    return [[before.end - 1, after.begin] for before, after in pairs]


def test_routes_and_ids_are_those_of_the_authors(published_v1):
    space = SlidingWindowSpace((12, 12, 12))
    assert space.ids == tuple(published_v1)
    for stitch in space:
        theirs = published_v1[stitch.id]
        assert [s.anchor for s in stitch.segments] == theirs['anchors']
        assert joints(stitch) == theirs['stitch_at']
        windows = [int(name.split('_')[1]) for name in stitch.layers]
        assert windows == theirs['stitching_layers']


@pytest.mark.parametrize(
    ('kernel', 'stride', 'nearest', 'count'),
    [(2, 1, True, 71), (2, 2, True, 51), (4, 4, True, 99), (2, 1, False, 732)],
)
def test_counts_of_the_paper(kernel, stride, nearest, count):
    assert len(SlidingWindowSpace((12,) * 3, kernel, stride, nearest)) == count


def test_layers_are_shared_within_a_window_and_fitted_to_all_its_joints():
    space = SlidingWindowSpace((4, 4), kernel=2, stride=2)
    assert space.joints == {
        f'0to1_{w}': tuple(
            (Position(0, 2 * w + last), Position(1, 2 * w + first - 1))
            for last, first in ((0, 0), (0, 1), (1, 0), (1, 1))
        )
        for w in (0, 1)
    }
    of_layers = [(*stitch.layers, *joints(stitch)) for stitch in space][2:]
    assert of_layers == [
        *[('0to1_0', joint) for joint in ([0, 0], [0, 1], [1, 0], [1, 1])],
        *[('0to1_1', joint) for joint in ([2, 2], [2, 3], [3, 2], [3, 3])],
    ]


def test_the_last_window_is_cut_at_the_end_of_the_anchors():
    space = SlidingWindowSpace((4, 4), kernel=3, stride=2)
    of_layers = [(*stitch.layers, *joints(stitch)) for stitch in space][2:]
    assert of_layers == [
        *[('0to1_0', [last, first]) for last in range(3) for first in range(3)],
        *[('0to1_1', joint) for joint in ([2, 3], [3, 2], [3, 3])],
    ]


@pytest.mark.parametrize('nearest', [True, False])
def test_slow_to_fast_is_the_mirror_image(nearest):
    there = SlidingWindowSpace((4,) * 3, nearest=nearest)
    back = SlidingWindowSpace((4,) * 3, nearest=nearest, direction='SF')
    assert back.ids == there.ids
    assert back.anchor_ids == (0, 1, 2)
    for a, b in zip(there, back, strict=True):
        anchors = [s.anchor for s in a.segments]
        assert [s.anchor for s in b.segments] == anchors[::-1]
        assert [s[1:] for s in b.segments] == [s[1:] for s in a.segments]
        assert b.kind == ('SF' if len(anchors) > 1 else 'anchor')
    mirrored = {}
    for name in there.layers:
        fast, slow, window = map(int, re.findall(r'\d+', name))
        ends = Position(slow, window), Position(fast, window - 1)
        mirrored[f'{slow}to{fast}_{window}'] = ends
    assert back.layers == mirrored
