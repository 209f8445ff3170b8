"""All spaces: fingerprints, what they refuse, their routes and their records."""

import json

import pytest
from block_counts import count_blocks

from snnet_mm.stitching import (
    Position,
    SlidingWindowSpace,
    StagedSpace,
    TwoWaySpace,
    check_space_record,
    write_space_record,
)


@pytest.mark.parametrize(
    ('space', 'fingerprint'),
    [
        (TwoWaySpace((12, 24)), '885d0524d4548b45'),
        (TwoWaySpace((12, 24), ('FS',)), 'b488364c716b4ad8'),
        (TwoWaySpace((3, 7), ids=(2, 5)), '9c4888ec1791faea'),
        (TwoWaySpace((12, 12, 24)), 'fec515c83da55802'),
        (SlidingWindowSpace((12, 12, 12)), 'da7aff1444c4b386'),
        (StagedSpace([(2, 2, 6, 2), (2, 2, 18, 2)], (0, 1, 2)), '7d6ae7a535d67b18'),
    ],
)
def test_stitching_space_fingerprints_stay(space, fingerprint):
    # Results, cost tables and checkpoints that were written name these.
    assert space.fingerprint == fingerprint


def staged(*depths, **settings):
    return StagedSpace(depths, **settings)


PAIR = (2, 2), (2, 4)


@pytest.mark.parametrize(
    ('build', 'words'),
    [
        (lambda: TwoWaySpace((12, 24))[13], r'id 13 .* 0-12, 14-134 \('),
        (lambda: TwoWaySpace((12, 24))[True], 'stitch id True'),
        (lambda: TwoWaySpace((5, 3)), 'backbone.anchors'),
        (lambda: TwoWaySpace([12]), 'backbone.anchors'),
        (lambda: TwoWaySpace((0, 5)), 'backbone.anchors'),
        (lambda: TwoWaySpace((3, 6), ['SS']), 'backbone.kinds'),
        (lambda: TwoWaySpace((3, 6), ids=[4]), 'id 4 .* 0-3, 5-8 .*stitch_ids'),
        (lambda: TwoWaySpace((3, 6), ids='4'), 'backbone.stitch_ids'),
        (lambda: SlidingWindowSpace((4, 5)), 'backbone.anchors'),
        (lambda: SlidingWindowSpace((4, 4), 5), 'backbone.kernel'),
        (lambda: SlidingWindowSpace((4, 4), stride=3), 'backbone.stride'),
        (lambda: staged((2, 2)), 'backbone.anchors'),
        (lambda: staged((2, 2), (2, 2, 2)), 'backbone.anchors'),
        (lambda: staged(*PAIR, stages=(0, 0)), 'backbone.stages'),
        (lambda: staged((2, 2), (1, 2), stages=(0,)), 'backbone.stages'),
        (lambda: staged(*PAIR).map_sources(3, 1), 'indices=3 is .* 1, 5'),
        (lambda: staged(*PAIR).map_sources(5, 0), 'backbone.maps_of'),
        (lambda: staged(*PAIR, maps=False).map_sources(5, 1), 'backbone.out'),
    ],
)
def test_stitching_space_wrong_settings_and_stitches_raise(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_stitching_space_steps_and_distinct_blocks():
    fast_slow = next(s for s in TwoWaySpace((2, 4)) if s.kind == 'FS')
    blocks = [Position(*p) for p in ((0, -1), (0, 0), (1, 2), (1, 3))]
    assert fast_slow.steps == (*blocks[:2], fast_slow.layers[0], *blocks[2:])
    space = TwoWaySpace((12, 24))
    assert count_blocks(space, shared=False) == 2412
    assert count_blocks(space, shared=True) == 894


def test_write_space_record_names_every_stitch():
    space = TwoWaySpace((2, 3), ids=[2, 4])
    assert json.loads(write_space_record(space)) == {
        'version': 1,
        'fingerprint': space.fingerprint,
        'depths': [2, 3],
        'stitches': {
            '0': [[[0, 0, 2]], []],
            '1': [[[1, 0, 3]], []],
            '2': [[[0, 0, 1], [1, 2, 3]], ['0to1_0']],
            '4': [[[1, 0, 2], [0, 1, 2]], ['1to0_0']],
        },
    }


SPACE, FEWER = TwoWaySpace((3, 7)), TwoWaySpace((3, 7), kinds=('FS',))
WHOLE, OF_FEWER = map(write_space_record, (SPACE, FEWER))


@pytest.mark.parametrize(
    ('record', 'space', 'words'),
    [
        (
            WHOLE,
            TwoWaySpace((3, 8)),
            rf'\(3, 7\) .*{SPACE.fingerprint}.* \(3, 8\) .* 1 is \[\[\[1, 0, 7\]\], ',
        ),
        (WHOLE, SlidingWindowSpace((4, 4, 4)), 'Stitch 0 is .*backbone.anchors'),
        (WHOLE.replace('0to1_1', '0to1_0'), SPACE, "'0to1_0'.* in the weights"),
        (WHOLE, FEWER, 'backbone.stitch_ids, resume'),
        (OF_FEWER, SPACE, 'Stitch 5 is unknown'),
        (WHOLE.replace('"version":1', '"version":2'), SPACE, 'version 2, expected 1'),
    ],
)
def test_check_space_record_other_stitches_raise(record, space, words):
    with pytest.raises(ValueError, match=words):
        check_space_record(record, space, exact=space is FEWER)


def test_check_space_record_same_or_more_stitches():
    check_space_record(WHOLE.encode(), SPACE, exact=True)
    check_space_record(WHOLE, FEWER)
    without_anchor = json.loads(WHOLE)
    del without_anchor['stitches']['0']
    check_space_record(json.dumps(without_anchor), SPACE)
