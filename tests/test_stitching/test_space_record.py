import json

import pytest

from snnet_mm.stitching import (
    SlidingWindowSpace,
    StagedSpace,
    TwoWaySpace,
    check_space_record,
    write_space_record,
)

SPACES = [
    TwoWaySpace((3, 7)),
    TwoWaySpace((3, 3, 5)),
    SlidingWindowSpace((4, 4, 4)),
    StagedSpace([(1, 2, 1), (2, 3, 1)]),
]


def test_what_is_written():
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


def test_the_message_says_both_routes_and_the_keys():
    with pytest.raises(ValueError, match='another stitching space') as error:
        check_space_record(write_space_record(TwoWaySpace((3, 7))), TwoWaySpace((3, 8)))
    for part in (
        'of 8 stitches of anchors of depths (3, 7)',
        'the model has 8 of (3, 8)',
        'Stitch 1 is slow[0:7] in the weights, slow[0:8] in the model',
    ):
        assert part in str(error.value)
    text = write_space_record(SPACES[0]).replace('0to1_1', '0to1_0')
    with pytest.raises(ValueError, match=r'by 0to1_0 in the weights, .* by 0to1_1 in'):
        check_space_record(text, SPACES[0])


@pytest.mark.parametrize('part', [dict(ids=[3]), dict(kinds=('FS',))])
def test_fewer_stitches_are_taken_but_not_to_go_on_with(part):
    whole, fewer = TwoWaySpace((3, 7)), TwoWaySpace((3, 7), **part)
    check_space_record(write_space_record(whole), fewer)
    with pytest.raises(ValueError, match='goes on with the stitches .*resume'):
        check_space_record(write_space_record(whole), fewer, exact=True)


def test_more_stitches_are_refused_unless_they_are_anchors():
    fewer = write_space_record(TwoWaySpace((3, 7), kinds=('FS',)))
    with pytest.raises(ValueError, match='Stitch 5 is unknown in the weights, slow'):
        check_space_record(fewer, TwoWaySpace((3, 7)))
    record = json.loads(write_space_record(TwoWaySpace((3, 7))))
    del record['stitches']['0']
    check_space_record(json.dumps(record), TwoWaySpace((3, 7)))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (dict(version=2), 'has version 2; this snnet_mm reads version 1'),
        (dict(stitches=[]), 'or they are damaged'),
        (dict(depths=None), 'or they are damaged'),
        *[(text, 'is damaged') for text in ('{}', '{', b'\xff\xfe\x00', '3')],
    ],
)
def test_a_record_that_cannot_be_read(change, message):
    space = TwoWaySpace((3, 7))
    if isinstance(change, dict):
        change = json.dumps(json.loads(write_space_record(space)) | change)
    with pytest.raises(ValueError, match=f'record of the stitching space .*{message}'):
        check_space_record(change, space)
