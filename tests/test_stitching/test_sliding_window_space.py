import re
from itertools import product

import pytest

from snnet_mm.stitching import Position, SlidingWindowSpace


def joints(stitch):
    pairs = zip(stitch.segments, stitch.segments[1:], strict=False)
    return [[before.end - 1, after.begin] for before, after in pairs]


def test_sliding_window_space_routes_and_ids_of_authors(published_v1):
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
def test_sliding_window_space_counts_of_paper(kernel, stride, nearest, count):
    assert len(SlidingWindowSpace((12,) * 3, kernel, stride, nearest)) == count


def test_sliding_window_space_layer_of_each_window():
    """Layers are shared within a window and fitted to all its joints."""
    space = SlidingWindowSpace((4, 4), kernel=2, stride=2)
    assert space.joints == {
        f'0to1_{w}': tuple(
            (Position(0, 2 * w + last), Position(1, 2 * w + first - 1))
            for last, first in ((0, 0), (0, 1), (1, 0), (1, 1))
        )
        for w in (0, 1)
    }


def test_sliding_window_space_windows_in_id_order():
    """The last window is cut at the end of the anchors; joints are of the first."""
    space = SlidingWindowSpace((4, 4), kernel=3, stride=2)
    windows = product(range(3), repeat=2), [(2, 3), (3, 2), (3, 3)]
    assert [(*stitch.layers, *joints(stitch)) for stitch in space][2:] == [
        (f'0to1_{n}', list(joint)) for n, found in enumerate(windows) for joint in found
    ]


@pytest.mark.parametrize('nearest', [True, False])
def test_sliding_window_space_slow_to_fast_is_mirrored(nearest):
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
