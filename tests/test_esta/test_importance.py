"""Choosing stitches by what training found important."""

import json
import math

import pytest

from snnet_mm.esta import importance_results
from snnet_mm.stitching import (
    Cost,
    CostTable,
    StitchResults,
    TwoWaySpace,
    pick,
    select_stitches,
)

# Three intervals of 10 to 40: {0, 2}, {6, 7}, {5, 3, 1}; ids as in a 3/3 space.
FLOPS = {0: 10e9, 2: 12e9, 6: 20e9, 7: 25e9, 5: 32e9, 3: 35e9, 1: 40e9}
SCORES = {0: 1.0, 2: 3.0, 6: 7.0, 7: 6.0, 5: 0.5, 3: 0.6, 1: 0.2}


@pytest.fixture
def space():
    return TwoWaySpace([3, 3], ids=FLOPS)


@pytest.fixture
def costs(space):
    table = {i: Cost(int(FLOPS.get(i, 11e9)), 1) for i in space.ids}
    return CostTable(table, (8, 8), space.fingerprint)


def test_the_most_important_of_every_interval_is_deployed(space, costs):
    results = importance_results(space, costs, SCORES, num_groups=3)
    assert results.metric == 'deployment'
    assert [r.id for r in results.stitches] == sorted(SCORES)
    e = math.exp
    third = e(0.5) + e(0.6) + e(0.2)
    wanted = {
        0: -1 + e(1) / (e(1) + e(3)),
        2: 1,
        6: 2,
        7: 0 + e(6) / (e(6) + e(7)),
        5: 1 + e(0.5) / third,
        3: 3,
        1: 1 + e(0.2) / third,
    }
    assert results.scores() == pytest.approx(wanted)
    assert {r.id: r.metrics['importance'] for r in results.stitches} == SCORES
    # Stitch 0 is on the front for being the cheapest of all.
    assert results.front() == [0, 2, 6, 3]


@pytest.mark.parametrize(
    'budget, best',
    [('11G', 0), ('19G', 2), ('24G', 6), ('33G', 6), ('38G', 3), ('99G', 3)],
)
def test_a_budget_buys_the_dearest_of_the_deployed(space, costs, budget, best):
    results = importance_results(space, costs, SCORES, num_groups=3)
    assert pick(space, budget, results=results) == best
    assert select_stitches(space, f'{budget},40G', results=results) in {(best, 3), (3,)}


@pytest.mark.parametrize(
    'scores, wanted',
    [
        ({0: 1.0, 7: 2.0}, {0: 1, 7: 2}),  # stitches without a score are left out
        ({0: 1e4, 2: 2e4}, {0: -1, 2: 1}),  # no overflow
    ],
)
def test_few_and_large_scores(space, costs, scores, wanted):
    assert importance_results(space, costs, scores, 3).scores() == wanted


def test_they_are_read_as_any_other_results(space, costs, tmp_path):
    results = importance_results(space, costs, SCORES, num_groups=3)
    path = tmp_path / 'stitch_scores.json'
    path.write_text(json.dumps(results.to_dict()))
    assert StitchResults.read(path, space) == results
    with pytest.raises(ValueError, match='of another stitching space'):
        StitchResults.read(path, TwoWaySpace([3, 4]))


def test_no_scores_and_wrong_ones_are_refused(space, costs):
    with pytest.raises(ValueError, match='allowed: the scores of a training'):
        importance_results(space, costs, {})
    with pytest.raises(ValueError, match='stitch id 99 is not in the stitching space'):
        importance_results(space, costs, {99: 1.0})
