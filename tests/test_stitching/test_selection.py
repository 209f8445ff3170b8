import numpy as np
import pytest

from snnet_mm.stitching import (
    Cost,
    CostTable,
    StitchResults,
    TwoWaySpace,
    select_stitches,
)

SPACE = TwoWaySpace((3, 7))
COSTS = CostTable({s.id: Cost(10**9 * (s.id + 1), 1) for s in SPACE}, (8, 8))
MIOU = {0: 10, 1: 30, 2: 20, 3: 40, 5: 40, 6: 15, 7: 60, 8: 50}
RESULTS = StitchResults.collect(
    SPACE, COSTS, {i: dict(mIoU=v) for i, v in MIOU.items()}
)


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


@pytest.mark.parametrize(
    'stitches', ['some', '1;2', '1-3', '', '1,', '1.5', 'Pareto', '8X']
)
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


def test_the_pareto_front_of_results():
    assert select_stitches(SPACE, 'pareto', results=RESULTS) == (0, 1, 3, 7)


def test_the_front_needs_results_of_the_space():
    with pytest.raises(ValueError, match="'pareto' needs the results.*--results"):
        select_stitches(SPACE, 'pareto', COSTS)
    with pytest.raises(ValueError, match='another stitching space'):
        select_stitches(TwoWaySpace((3, 8)), 'pareto', COSTS, RESULTS)


@pytest.mark.parametrize(
    ('stitches', 'ids'),
    [
        ('4G', (3,)),
        ('9G,1G, 3G', (7, 0, 1)),
        (['2G', '8G'], (1, 7)),
        (['8G', '9G', '2G'], (7, 1)),
    ],
)
def test_the_best_stitch_within_each_budget(stitches, ids):
    assert select_stitches(SPACE, stitches, COSTS, RESULTS) == ids
    assert select_stitches(SPACE, stitches, results=RESULTS) == ids


def test_budgets_without_results_go_by_the_prior():
    # By the prior the last affordable one is best here, however good it was measured.
    assert select_stitches(SPACE, '1G,6G', COSTS) == (0, 5)


@pytest.mark.parametrize(
    ('stitches', 'words'),
    [
        ('0.5G', 'budget 0.5G: no stitch is that cheap; the cheapest is stitch 0'),
        ('4G,5', "budget '5' has no unit"),
        ('-4G', "budget '-4G'; allowed"),
        ('4ms', 'latency .* was not measured'),
    ],
)
def test_impossible_budgets_are_refused(stitches, words):
    with pytest.raises(ValueError, match=words):
        select_stitches(SPACE, stitches, COSTS)
    with pytest.raises(ValueError, match='needs a cost table or results'):
        select_stitches(SPACE, '4G')
