"""All spaces: fingerprints, what they refuse, their routes and their records."""

import json

import pytest
from block_counts import count_blocks

from snnet_mm.stitching import (
    Position,
    Segment,
    SlidingWindowSpace,
    StagedSpace,
    Stitch,
    StitchingLayerSpec,
    StitchingSpace,
    TwoWaySpace,
    check_space_record,
    write_space_record,
)

SPACES = [
    TwoWaySpace((3, 7)),
    SlidingWindowSpace((4, 4, 4)),
    StagedSpace([(1, 2, 1), (2, 3, 1)]),
]


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
def test_fingerprints_stay(space, fingerprint):
    # Results, cost tables and checkpoints that were written name these.
    assert space.fingerprint == fingerprint


def staged(*depths, **settings):
    return StagedSpace(depths, **settings)


PAIR = (2, 2), (2, 4)
REFUSED = [
    (lambda: TwoWaySpace((12, 24))[13], r'id 13 .* 0-12, 14-134 \('),
    (lambda: TwoWaySpace((12, 24))[True], 'stitch id True'),
    *(
        (lambda depths=depths: TwoWaySpace(depths), 'anchors=.*backbone.anchors')
        for depths in ((5, 3), [12], (0, 5))
    ),
    (lambda: TwoWaySpace((3, 6), ['SS']), "kinds=.*'SS'.* is invalid"),
    (lambda: TwoWaySpace((3, 6), ids=[4]), 'id 4 is not .* 0-3, 5-8 .*stitch_ids'),
    (lambda: TwoWaySpace((3, 6), ids='4'), "stitch_ids='4' is invalid"),
    (lambda: SlidingWindowSpace((4, 5)), r'anchors=\(4, 5\) is invalid'),
    (lambda: SlidingWindowSpace((4, 4), 5), 'kernel=5 is .* 1 to 4'),
    (lambda: SlidingWindowSpace((4, 4), stride=3), 'stride=3 is invalid'),
    (lambda: staged((2, 2)), r'anchors=\(\(2, 2\),\) is '),
    (lambda: staged((2, 2), (2, 2, 2)), 'anchors=.* equal numbers of stages'),
    (lambda: staged(*PAIR, stages=(0, 0)), r'stages=\(0, 0\) is .* 0 to 1'),
    (lambda: staged((2, 2), (1, 2), stages=(0,)), r'stages=\(0,\) is .* two blocks'),
    (lambda: staged(*PAIR).substitutes(3), 'indices=3 is .* 1, 5'),
    (lambda: staged(*PAIR, maps=False).substitutes(5), "out='maps' is invalid"),
]


@pytest.mark.parametrize(('build', 'words'), REFUSED)
def test_spaces_and_stitches_there_cannot_be(build, words):
    with pytest.raises(ValueError, match=words):
        build()


@pytest.mark.parametrize(
    ('segments', 'layers', 'message'),
    [
        ([(0, 0, 4)], [], r'segments=\(\(0, 0, 4\),\).*for anchors of \(3, 5\) blocks'),
        ([(0, 0, 1), (0, 1, 3)], ['ab'], 'in another anchor or further on'),
        ([(0, 0, 1), (1, 2, 4)], ['ab'], 'from a first to a last block'),
        ([(0, 0, 1), (1, 2, 5)], [], r'layers=\(\) is .*one stitching layer per joint'),
        ([(0, 0, 1), (1, 2, 5)], ['ba'], r"layers=\('ba',\) is .* of: ab"),
    ],
)
def test_routes_that_cannot_be_run(segments, layers, message):
    stitch = Stitch(7, 'FS', tuple(Segment(*s) for s in segments), tuple(layers))
    specs = {'ab': StitchingLayerSpec(Position(0, 0), Position(1, 1))}
    with pytest.raises(ValueError, match=rf'{message}.*stitches\[7\]\.'):
        StitchingSpace((3, 5), [stitch], specs)


def test_steps_and_distinct_blocks():
    fast_slow = next(s for s in TwoWaySpace((2, 4)) if s.kind == 'FS')
    blocks = [Position(*p) for p in ((0, -1), (0, 0), (1, 2), (1, 3))]
    assert fast_slow.steps == (*blocks[:2], fast_slow.layers[0], *blocks[2:])
    space = TwoWaySpace((12, 24))
    assert count_blocks(space, shared=False) == 2412
    assert count_blocks(space, shared=True) == 894


# --- records in weights


def test_the_record_of_a_space():
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


@pytest.mark.parametrize('space', SPACES, ids=lambda s: type(s).__name__)
def test_a_space_takes_what_it_wrote_and_no_other(space):
    record = write_space_record(space)
    check_space_record(record, space, exact=True)
    check_space_record(record.encode(), space)
    for other in SPACES:
        if other is not space:
            words = rf'another.*space.*{space.fingerprint}.*{other.fingerprint}'
            with pytest.raises(ValueError, match=words):
                check_space_record(record, other)


FEWER = TwoWaySpace((3, 7), kinds=('FS',))
WHOLE, OF_FEWER = map(write_space_record, (SPACES[0], FEWER))
OTHER = (
    r'8 stitches of .* depths \(3, 7\) .*has 8 of \(3, 8\).*Stitch 1 is slow\[0:7\] in '
)
OTHER += r'the weights, slow\[0:8\] in the model \(config k'


@pytest.mark.parametrize(
    ('record', 'space', 'words'),
    [
        (WHOLE, TwoWaySpace((3, 8)), OTHER),
        (WHOLE.replace('0to1_1', '0to1_0'), SPACES[0], 'by 0to1_0 in .* by 0to1_1 in'),
        (WHOLE, FEWER, 'goes on with the stitches .*resume'),
        (OF_FEWER, SPACES[0], 'Stitch 5 is unknown in the weights, slow'),
    ],
)
def test_records_of_other_stitches(record, space, words):
    check_space_record(WHOLE, FEWER)
    without_anchor = json.loads(WHOLE)
    del without_anchor['stitches']['0']
    check_space_record(json.dumps(without_anchor), SPACES[0])
    with pytest.raises(ValueError, match=words):
        check_space_record(record, space, exact=space is FEWER)


def test_a_record_of_a_newer_version_is_refused():
    newer = write_space_record(SPACES[0]).replace('"version":1', '"version":2')
    with pytest.raises(ValueError, match='has version 2, expected 1'):
        check_space_record(newer, SPACES[0])
