import numpy as np
import pytest

from snnet_mm.stitching import TwoWaySpace, select_stitches

SPACE = TwoWaySpace((3, 7))


@pytest.mark.parametrize(
    ('stitches', 'ids'),
    [
        ('all', (0, 1, 2, 3, 5, 6, 7, 8)),
        ('anchors', (0, 1)),
        (5, (5,)),
        ('5', (5,)),
        ('8,0, 3', (8, 0, 3)),
        ([7, 1], (7, 1)),
        (range(2, 4), (2, 3)),
        ([np.int64(6), np.int64(2)], (6, 2)),
    ],
)
def test_selections(stitches, ids):
    selected = select_stitches(SPACE, stitches)
    assert selected == ids
    assert all(type(i) is int for i in selected)


@pytest.mark.parametrize('stitches', ['some', '1;2', '1-3', '', '1,', '1.5'])
def test_other_words_are_refused(stitches):
    with pytest.raises(ValueError, match="allowed are 'all', 'anchors'") as error:
        select_stitches(SPACE, stitches)
    assert f'stitches={stitches!r}' in str(error.value)


@pytest.mark.parametrize('stitches', [[], (), [1, 1], '2,2'])
def test_none_or_repeated_ids_are_refused(stitches):
    with pytest.raises(ValueError, match='one or more ids, each once'):
        select_stitches(SPACE, stitches)


@pytest.mark.parametrize('stitches', [4, '0,4', [9, 0], -1])
def test_ids_outside_the_space_are_refused(stitches):
    with pytest.raises(ValueError, match='allowed are 0-3, 5-8'):
        select_stitches(SPACE, stitches)
