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
)

SPACE = TwoWaySpace((3, 7))
# The higher the id, the cheaper in parameters and the slower.
COUNTED = StitchTable.counted(
    {i: Cost(10**9 * (i + 1), 10**6 * (20 - i)) for i in SPACE.ids}, (48, 64), SPACE
)
LATENCY = {i: 2.0 * i + 1 for i in SPACE.ids}
COSTS = COUNTED.measured(Setup(processor(), 1, 'fp32'), LATENCY)
MIOU = {0: 10, 1: 30, 2: 20, 3: 40, 5: 40, 6: 15, 7: 60, 8: 50}
NAN = float('nan')


def results_of(values=MIOU, metric='mIoU', costs=COSTS):
    found = {i: {metric: v, 'aAcc': 100 - v} for i, v in values.items()}
    return costs.with_metrics(found)


RESULTS = results_of()


@pytest.mark.parametrize(
    ('budget', 'best'),
    # At 6.5G stitch 5 is as good as 3, and dearer.
    [('1G', 0), ('6.5G', 3), ('8G', 7), ('13M', 7), ('12.5M', 8), ('14ms', 3)],
)
def test_the_best_measured_stitch_within_a_budget(budget, best):
    assert pick_stitch(SPACE, budget, RESULTS).id == best
    assert pick_stitch(SPACE, parse_budget(budget), RESULTS).id == best


# In int8 stitches take a third of the time, and lose what is here.
INT8 = COSTS.measured(
    Setup(processor(), 1, 'int8'), {i: ms / 3 for i, ms in LATENCY.items()}
)
LOST = {0: 1, 1: 0, 2: 1, 3: 0, 5: 0, 6: 0, 7: 30, 8: -1}


def test_the_best_stitch_and_precision_within_a_budget():
    int8 = results_of({i: v - LOST[i] for i, v in MIOU.items()}, costs=INT8)
    both = StitchTable.merge(RESULTS, int8)
    for budget, best in {
        '1ms': ('int8', 1),
        '2.5ms': ('int8', 3),
        '6ms': ('int8', 8),
        '15ms': ('fp32', 7),
    }.items():
        choice = pick_stitch(SPACE, budget, both)
        assert (choice.precision, choice.id) == best
        assert choice.input_size == COSTS.input_size
        assert f'in {best[0]}, mIoU' in choice.reason
    assert Selection('6ms,2.5ms', [RESULTS, int8]).select(SPACE) == (8, 3)
    with pytest.raises(ValueError, match=r'cheapest is stitch 0 .*0\.3334ms\) in int8'):
        pick_stitch(SPACE, '0.1ms', both)


def test_costs_and_results_from_files(tmp_path):
    files = tmp_path / 'stitches.json', tmp_path / 'costs.json'
    results_of(costs=COUNTED).save(files[0])
    COSTS.save(files[1])
    assert Selection('14ms', files).select(SPACE) == (3,)
    assert Selection('14ms', files).select(SPACE, COUNTED) == (3,)
    with pytest.raises(ValueError, match='the latency .* not measured'):
        Selection('14ms', files[0]).select(SPACE, COUNTED)


def test_tables_of_another_space_are_refused():
    foreign = replace(RESULTS, space=TwoWaySpace((3, 8)).fingerprint)
    for choose in (Selection('all', foreign).select, Selection('6G', foreign).select):
        with pytest.raises(ValueError, match='--results. is of another stitching spa'):
            choose(SPACE)
    with pytest.raises(ValueError, match='the table is of another stitching space'):
        pick_stitch(SPACE, '6G', foreign)


def test_an_unknown_direction_is_asked_for():
    unknown = results_of(metric='kappa')
    with pytest.raises(ValueError, match="'kappa' is better .*--lower-is-better"):
        Selection('pareto', unknown).select(SPACE)
    for said, best in (('kappa', 0), ('none', 7)):
        for stitches in ('pareto', ['900G']):
            selection = Selection(stitches, unknown, lower_is_better=[said])
            assert selection.select(SPACE)[-1] == best


def test_nan_is_never_chosen():
    values = MIOU | dict.fromkeys((7, 3, 0), NAN)
    for metric, best in (('mIoU', 8), ('rmse', 6)):
        results = results_of(values, metric)
        assert pick_stitch(SPACE, '900G', results).id == best
        assert not {0, 3, 7} & {*Selection('pareto', results).select(SPACE)}
    nothing = results_of(dict.fromkeys(MIOU, NAN))
    with pytest.raises(ValueError, match='mIoU is NaN for all 8 stitches'):
        Selection('pareto', nothing).select(SPACE)


def test_only_measured_stitches_are_picked():
    few = StitchTable.merge(COSTS, results_of({2: 20, 5: 40}))
    assert pick_stitch(SPACE, '900G', few).id == 5
    with pytest.raises(ValueError, match=r'budget 2G: no evaluated stitch .* stitch 2'):
        pick_stitch(SPACE, '2G', few)
    for table in (RESULTS, COSTS):
        words = r'budget 0.5G: .* stitch 0 \(fast\[0:3\], 1G\)'
        with pytest.raises(ValueError, match=words):
            pick_stitch(SPACE, '0.5G', table)


@pytest.mark.parametrize(
    ('stitches', 'ids'),
    [
        ('all', (0, 1, 2, 3, 5, 6, 7, 8)),
        ('anchors', (0, 1)),
        (5, (5,)),
        ('8,0, 3', (8, 0, 3)),
        ([np.int64(6), np.int64(2)], (6, 2)),
        ('pareto', (0, 1, 3, 7)),
        ('9G,1G, 3G', (7, 0, 1)),
        (['8G', '9G', '2G'], (7, 1)),
        ('100%,30%', (7, 1)),  # of the 9 GFLOPs of stitch 8
    ],
)
def test_selections(stitches, ids):
    selected = Selection(stitches, RESULTS).select(SPACE)
    assert selected == ids
    assert all(type(i) is int for i in selected)
    # By the prior the last affordable one is best here, however good it was measured.
    assert Selection('1G,6G').select(SPACE, COSTS) == (0, 5)


def test_shares_of_stitches_that_were_not_tested():
    """A half of all 9 GFLOPs, not of the 4 that the dearest tested stitch has."""
    tested = Selection('50%', results_of({0: 10, 1: 30, 2: 20, 3: 40}))
    assert tested.select(SPACE, COSTS) == (3,)
    assert tested.select(SPACE) == (1,)


WORDS = "stitch-id=.* is invalid: expected 'all', .*option: --stitch-id"
NEEDS = 'results=None is invalid.*option: --results'


@pytest.mark.parametrize(
    ('stitches', 'costs', 'words'),
    [
        *[(s, None, WORDS) for s in ('1-3', '', [], [1, 1], [1.5])],
        ('0,4', None, 'expected one of 0-3, 5-8'),
        ('4G,5', COSTS, "budget='5' is invalid"),
        ('4ms', COUNTED, 'latency .* not measured.* --latency'),
        ('4G', None, NEEDS),
        ('pareto', COSTS, 'a stitches.json of .*, for pareto .option: --results'),
    ],
)
def test_what_cannot_be_selected(stitches, costs, words):
    with pytest.raises(ValueError, match=words):
        Selection(stitches).select(SPACE, costs)


def test_the_best_pair_of_a_stitch_and_a_size_within_a_budget():
    rows = [
        replace(
            row,
            input_size=(24, 32),
            flops=row.flops // 4,
            metrics=dict(row.metrics, mIoU=row.metrics['mIoU'] - 15),
        )
        for row in RESULTS.rows
    ]
    small = replace(RESULTS, rows=rows)
    both = StitchTable.merge(RESULTS, small)
    # Stitch 7 has mIoU 60 at 8 GFLOPs, 45 at 2; stitch 3 has 40 at 4.
    for budget, pair in {'8G': (7, (48, 64)), '25%': (7, (24, 32))}.items():
        choice = pick_stitch(SPACE, budget, both)
        assert choice[:2] == pair
        assert 'on images of {}x{}, mIoU'.format(*pair[1]) in choice.reason
    # Of the counted size, if there are any.
    assert Selection('4G', both).select(SPACE, COUNTED) == (3,)
    assert Selection('2G', small).select(SPACE, COUNTED) == (7,)


@pytest.mark.parametrize(
    ('device', 'on', 'words'),
    [
        (f'{processor()}, 2 threads', None, None),
        ('a board', None, 'not of a board'),
        ('a board', ['H100', 'A100'], 'of H100 or A100, not of a board'),
    ],
)
def test_milliseconds_of_another_device_are_refused(device, on, words):
    measured = RESULTS.measured(Setup(device, 1, 'fp32'), LATENCY)
    assert pick_stitch(SPACE, '6G', measured, on).id == 3  # FLOPs are equal everywhere
    if words is None:
        assert pick_stitch(SPACE, '6ms', measured, on).id == 1
        return
    with pytest.raises(ValueError, match=f"budget='6ms' .*{words}"):
        pick_stitch(SPACE, '6ms', measured, on)
