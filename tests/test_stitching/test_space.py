import re

import pytest

from snnet_mm.stitching import (
    Position,
    Segment,
    SlidingWindowSpace,
    StagedSpace,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
    TwoWaySpace,
)


@pytest.mark.parametrize(
    ('space', 'fingerprint'),
    [
        (TwoWaySpace((12, 24)), '885d0524d4548b45'),
        (TwoWaySpace((6, 12)), 'd9afd81590cf9156'),
        (TwoWaySpace((12, 24), ('FS',)), 'b488364c716b4ad8'),
        (TwoWaySpace((3, 7), ids=(2, 5)), '9c4888ec1791faea'),
        (TwoWaySpace((12, 12, 24)), 'fec515c83da55802'),
        (SlidingWindowSpace((12, 12, 12)), 'da7aff1444c4b386'),
        (StagedSpace([(2, 2, 6, 2), (2, 2, 18, 2)], (0, 1, 2)), '7d6ae7a535d67b18'),
    ],
)
def test_fingerprints_stay(space, fingerprint):
    # Results, cost tables and checkpoints that were written name these.
    assert space.fingerprint == fingerprint


@pytest.mark.parametrize('wrong', [13, '5', True, 1.0, 1.5, [1], {1: 1}, None])
def test_unknown_id_is_refused(wrong):
    words = rf'stitch id {re.escape(repr(wrong))} .* allowed are 0-12, 14-134 \('
    with pytest.raises(ValueError, match=words):
        TwoWaySpace((12, 24))[wrong]


@pytest.mark.parametrize('ids', [5, True, '5'])
def test_what_is_no_list_of_ids_is_refused(ids):
    with pytest.raises(ValueError, match=f'stitch_ids={ids!r}; allowed: a list'):
        TwoWaySpace((12, 24), ids=ids)


@pytest.mark.parametrize(
    ('segments', 'layers', 'message'),
    [
        ([], [], r'segments=\(\)'),
        ([(2, 0, 3)], [], r'for anchors of \(3, 5\) blocks'),
        ([(0, 0, 4)], [], r'segments=\(\(0, 0, 4\),\)'),
        ([(0, 0, 1), (0, 1, 3)], ['ab'], 'another anchor after every joint'),
        ([(0, 0, 1), (1, 2, 4)], ['ab'], 'a route from a first to a last block'),
        ([(0, 0, 1), (1, 2, 5)], [], r'layers=\(\); .*one stitching layer per joint'),
        ([(0, 0, 1), (1, 2, 5)], ['ba'], r"layers=\('ba',\); .* of: ab"),
    ],
)
def test_routes_that_cannot_be_run(segments, layers, message):
    stitch = Stitch(7, 'FS', tuple(Segment(*s) for s in segments), tuple(layers))
    specs = {'ab': StitchingLayerSpec(Position(0, 0), Position(1, 1))}
    with pytest.raises(ValueError, match=rf'{message}.*stitches\[7\]\.'):
        StitchingSpace((3, 5), [stitch], specs)
