import math
from dataclasses import replace

import numpy as np
import pytest

from snnet_mm.runtime.device import processor
from snnet_mm.stitching import (
    Cost,
    Selection,
    Setup,
    StitchTable,
    TwoWaySpace,
    parse_budget,
    pick_stitch,
    prior_scores,
)

SPACE = TwoWaySpace((3, 7))
# The higher the id, the cheaper in parameters and the slower.
COUNTED = StitchTable.counted(
    {i: Cost(10**9 * (i + 1), 10**6 * (20 - i)) for i in SPACE.ids}, (48, 64), SPACE
)
LATENCY = {i: 2.0 * i + 1 for i in SPACE.ids}
COSTS = COUNTED.measured(Setup(processor(), 1, 'fp32'), LATENCY)
MIOU = {0: 10, 1: 30, 2: 20, 3: 40, 5: 40, 6: 15, 7: 60, 8: 50}


def results_of(values=MIOU, metric='mIoU', costs=COSTS):
    found = {i: {metric: v, 'aAcc': 100 - v} for i, v in values.items()}
    return costs.with_metrics(found)


RESULTS = results_of()
# In int8 stitches take a third of the time, and lose what is here.
LOST = {0: 1, 1: 0, 2: 1, 3: 0, 5: 0, 6: 0, 7: 30, 8: -1}
INT8 = results_of(
    {i: v - LOST[i] for i, v in MIOU.items()},
    costs=COSTS.measured(
        Setup(processor(), 1, 'int8'), {i: ms / 3 for i, ms in LATENCY.items()}
    ),
)
# At half the side: a quarter of the FLOPs, 15 points less.
SMALL = replace(
    RESULTS,
    rows=[
        replace(
            row,
            input_size=(24, 32),
            flops=row.flops // 4,
            metrics=dict(row.metrics, mIoU=row.metrics['mIoU'] - 15),
        )
        for row in RESULTS.rows
    ],
)
BOTH, SIZES = (StitchTable.merge(RESULTS, other) for other in (INT8, SMALL))
ONE = (48, 64), 'fp32'


@pytest.mark.parametrize(
    ('table', 'budget', 'best', 'words'),
    # At 6.5G stitch 5 is as good as 3, and dearer.
    [
        *[(RESULTS, '1G', (0, *ONE), ''), (RESULTS, '6.5G', (3, *ONE), '')],
        *[(RESULTS, '8G', (7, *ONE), ''), (RESULTS, '13M', (7, *ONE), '')],
        *[(RESULTS, '12.5M', (8, *ONE), ''), (RESULTS, '14ms', (3, *ONE), '')],
        (BOTH, '1ms', (1, (48, 64), 'int8'), ' in int8'),
        (BOTH, '2.5ms', (3, (48, 64), 'int8'), ' in int8'),
        (BOTH, '6ms', (8, (48, 64), 'int8'), ' in int8'),
        (BOTH, '15ms', (7, *ONE), ' in fp32'),
        # Stitch 7 has mIoU 60 at 8 GFLOPs, 45 at 2; stitch 3 has 40 at 4.
        (SIZES, '8G', (7, *ONE), ' on images of 48x64'),
        (SIZES, '25%', (7, (24, 32), 'fp32'), ' on images of 24x32'),
    ],
)
def test_pick_stitch_best_within_budget(table, budget, best, words):
    choice = pick_stitch(SPACE, budget, table)
    assert choice == pick_stitch(SPACE, parse_budget(budget), table)
    assert choice[:3] == best
    score = next(table.score(row) for row in table.rows if row.key == best)
    assert f'{words}, mIoU {score:.4g}, the best' in choice.reason


@pytest.mark.parametrize(
    ('table', 'budget', 'words'),
    [
        (RESULTS, '0.5G', r'no evaluated .* 0 \(fast\[0:3\], 1G\)'),
        (COSTS, '0.5G', r'no stitch .* 0 \(fast\[0:3\], 1G\)'),
        (results_of({2: 20, 5: 40}), '2G', 'no evaluated .* stitch 2 '),
        (INT8, '0.1ms', r'stitch 0 .*0\.3334ms'),
        (COUNTED, '4ms', 'latency .* --latency .*--results'),
        (
            replace(RESULTS, space=TwoWaySpace((3, 8)).fingerprint),
            '6G',
            'the table .*backbone.stitch_ids',
        ),
    ],
)
def test_pick_stitch_unmet_budgets_raise(table, budget, words):
    with pytest.raises(ValueError, match=words):
        pick_stitch(SPACE, budget, table)


@pytest.mark.parametrize(
    ('device', 'on', 'words'),
    [
        (f'{processor()}, 2 threads', None, None),
        ('a board', None, 'not of a board'),
        ('a board', ['H100', 'A100'], 'of H100 or A100, not'),
    ],
)
def test_pick_stitch_milliseconds_of_other_device_raise(device, on, words):
    measured = RESULTS.measured(Setup(device, 1, 'fp32'), LATENCY)
    assert pick_stitch(SPACE, '6G', measured, on).id == 3  # FLOPs are equal everywhere
    if words is None:
        assert pick_stitch(SPACE, '6ms', measured, on).id == 1
        return
    with pytest.raises(ValueError, match=f"budget='6ms' .*{words}"):
        pick_stitch(SPACE, '6ms', measured, on)


def test_selection_reads_costs_and_results_from_files(tmp_path):
    files = tmp_path / 'stitches.json', tmp_path / 'costs.json'
    results_of(costs=COUNTED).save(files[0])
    COSTS.save(files[1])
    assert Selection('14ms', files).select(SPACE) == (3,)
    assert Selection('14ms', files).select(SPACE, COUNTED) == (3,)


def test_pick_stitch_never_chooses_nan():
    for metric, best in (('mIoU', 8), ('rmse', 6)):
        results = results_of(MIOU | dict.fromkeys((7, 3, 0), math.nan), metric)
        assert pick_stitch(SPACE, '900G', results).id == best
    nothing = results_of(dict.fromkeys(MIOU, math.nan))
    with pytest.raises(ValueError, match='mIoU is NaN for all 8'):
        Selection('pareto', nothing).select(SPACE)


@pytest.mark.parametrize(
    ('stitches', 'results', 'counted', 'ids'),
    [
        ('all', None, None, (0, 1, 2, 3, 5, 6, 7, 8)),
        ('anchors', None, None, (0, 1)),
        (5, None, None, (5,)),
        ('8,0, 3', None, None, (8, 0, 3)),
        ([np.int64(6), np.int64(2)], None, None, (6, 2)),
        ('pareto', RESULTS, None, (0, 1, 3, 7)),
        ('9G,1G, 3G', RESULTS, None, (7, 0, 1)),
        (['8G', '9G', '2G'], RESULTS, None, (7, 1)),
        ('6ms,2.5ms', [RESULTS, INT8], None, (8, 3)),
        # By the prior the last affordable one is best here.
        ('1G,6G', None, COSTS, (0, 5)),
        ('100%,30%', RESULTS, None, (7, 1)),  # of the 9 GFLOPs of stitch 8
        # Also if the dearest tested stitch has 4.
        ('50%', results_of({0: 10, 1: 30, 2: 20, 3: 40}), COSTS, (3,)),
        ('50%', results_of({0: 10, 1: 30, 2: 20, 3: 40}), None, (1,)),
        # Of the counted size, if there are any.
        ('4G', StitchTable.merge(RESULTS, SMALL), COUNTED, (3,)),
        ('2G', SMALL, COUNTED, (7,)),
    ],
)
def test_selection_of_every_kind(stitches, results, counted, ids):
    selected = Selection(stitches, results).select(SPACE, counted)
    assert selected == ids
    assert all(type(i) is int for i in selected)


WORDS = "stitch-id=.* 'all', .*: --stitch-id"


@pytest.mark.parametrize(
    ('stitches', 'costs', 'words'),
    [
        *[(s, None, WORDS) for s in ('1-3', '', [], [1, 1], [1.5])],
        ('0,4', None, 'expected one of 0-3, 5-8'),
        ('4G,5', COSTS, "budget='5' is invalid"),
        ('4G', None, 'a budget needs .*--results'),
        ('pareto', COSTS, 'for pareto .*--results'),
    ],
)
def test_selection_wrong_stitches_raise(stitches, costs, words):
    with pytest.raises(ValueError, match=words):
        Selection(stitches).select(SPACE, costs)


def test_prior_scores_by_hand():
    flops = {0: 100, 1: 500, 2: 400, 3: 300, 5: 200, 6: 300, 7: 400, 8: 250}
    # Stitch 2 leaves the fast anchor after 1 of 3 blocks, 5 the slow one after 3 of 7.
    expected = {
        0: 0,
        1: 1,
        2: 0.75 - 0.3 * 1 / 3,
        3: 0.5 - 0.3 * 2 / 3,
        5: 0.25 - 0.2 * 3 / 7,
        6: 0.5 - 0.2 * 5 / 7,
        7: 0.75 - 0.2 * 3 / 7 - 0.3 * 2 / 3,
        8: 0.375 - 0.3 * 1 / 3 - 0.2 * 5 / 7,
    }
    assert prior_scores(SPACE, flops) == pytest.approx(expected)
