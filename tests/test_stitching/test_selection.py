from dataclasses import replace

import numpy as np
import pytest
import small_results

from snnet_mm.runtime import BudgetController
from snnet_mm.runtime.device import processor
from snnet_mm.stitching import (
    Cost,
    CostTable,
    Selection,
    Setup,
    StitchResults,
    TwoWaySpace,
    best_per_budget_group,
    cost_column,
    joint_rows,
    pareto_front,
    parse_budget,
    pick,
)

SPACE = TwoWaySpace((3, 7))
# The higher the id, the cheaper in parameters and the slower.
COSTS = CostTable(
    {i: Cost(10**9 * (i + 1), 10**6 * (20 - i), 2.0 * i + 1) for i in SPACE.ids},
    (48, 64),
    SPACE.fingerprint,
    Setup('cpu', 1, 'float32'),
)
MIOU = {0: 10, 1: 30, 2: 20, 3: 40, 5: 40, 6: 15, 7: 60, 8: 50}
NAN = float('nan')


def results_of(values=MIOU, metric='mIoU', costs=COSTS):
    found = {i: {metric: v, 'aAcc': 100 - v} for i, v in values.items()}
    return StitchResults.collect(SPACE, costs, found)


RESULTS = results_of()


@pytest.mark.parametrize(
    ('budget', 'best'),
    # At 6.5G stitch 5 is as good as 3, and dearer.
    [('1G', 0), ('6.5G', 3), ('8G', 7), ('13M', 7), ('12.5M', 8), ('14ms', 3)],
)
def test_the_best_measured_stitch_within_a_budget(budget, best):
    assert pick(SPACE, budget, COSTS, RESULTS).id == best
    assert pick(SPACE, parse_budget(budget), results=RESULTS).id == best


# In int8 stitches take a third of the time, and lose what is here.
HALVES = COSTS.measured(
    Setup('cpu', 1, 'int8'), {i: COSTS[i].latency / 3 for i in COSTS}
)
LOST = {0: 1, 1: 0, 2: 1, 3: 0, 5: 0, 6: 0, 7: 30, 8: -1}


def test_the_best_stitch_and_precision_within_a_budget():
    int8 = results_of({i: v - LOST[i] for i, v in MIOU.items()})
    results = [RESULTS, int8.with_costs(HALVES)]
    for budget, best in {
        '1ms': ('int8', 1),
        '2.5ms': ('int8', 3),
        '6ms': ('int8', 8),
        '15ms': ('float32', 7),
    }.items():
        choice = pick(SPACE, budget, results=results)
        assert (choice.precision, choice.id) == best
        assert choice.input_size == COSTS.input_size
        assert choice.reason.endswith(f'; in {best[0]}')
    assert Selection('6ms,2.5ms', results).select(SPACE) == (8, 3)
    words = r'in float32: .*stitch 0 .*1ms; in int8: .*0\.3334ms'
    with pytest.raises(ValueError, match=words):
        pick(SPACE, '0.1ms', results=results)
    with pytest.raises(ValueError, match='none with several results'):
        pick(SPACE, '6ms', COSTS, results)
    with pytest.raises(ValueError, match='ranked by one metric'):
        pick(SPACE, '6ms', results=[RESULTS, results_of(metric='aAcc')])
    with pytest.raises(ValueError, match='one table of each size'):
        Selection('6ms', costs=[COSTS, COSTS])


def test_costs_of_another_space_are_refused(tmp_path):
    other, file = TwoWaySpace((3, 8)), tmp_path / 'costs.json'
    foreign = replace(COSTS, space=other.fingerprint)
    for costs, results in ((foreign, RESULTS), (foreign, None)):
        with pytest.raises(ValueError, match='the cost table is of another stitching'):
            pick(SPACE, '6ms', costs, results)
    CostTable({0: COSTS[0]}, (48, 64), other.fingerprint, COSTS.setup).save(file)
    words = r'costs\.json .*option: --costs\) is of another stitching space'
    with pytest.raises(ValueError, match=words):
        Selection('6ms', RESULTS, file).check(SPACE, counted=True)
    assert pick(SPACE, '6ms', replace(COSTS, space=None)).id == 2


def test_results_without_the_cost_of_the_budget_are_not_skipped():
    counted = replace(RESULTS, input_size=(24, 32), setup=None)
    rows = [replace(r, latency=None) for r in counted.stitches]
    counted = replace(counted, stitches=rows)
    for results in ([RESULTS, counted], [counted, RESULTS]):
        assert pick(SPACE, '6G', results=results).id == 3
        with pytest.raises(ValueError, match='the latency .* not measured'):
            pick(SPACE, '6ms', results=results)


def test_an_unknown_direction_is_asked_for():
    unknown = results_of(metric='kappa')
    for chosen_by in (
        lambda **said: Selection(['900G'], unknown, COSTS, **said).select(SPACE)[-1],
        lambda **said: Selection('pareto', unknown, **said).select(SPACE)[-1],
    ):
        with pytest.raises(ValueError, match="'kappa' is better .*--lower-is-better"):
            chosen_by()
        assert chosen_by(lower_is_better=['kappa']) == 0
        assert chosen_by(lower_is_better=['none']) == 7
    with pytest.raises(ValueError, match='--lower-is-better kappa'):
        best_per_budget_group(unknown, 1)


def test_nan_is_never_chosen():
    values = MIOU | dict.fromkeys((7, 3, 0), NAN)
    for metric, best in (('mIoU', 8), ('rmse', 6)):
        results = results_of(values, metric)
        assert pick(SPACE, '900G', results=results).id == best
        assert not {0, 3, 7} & {*Selection('pareto', results).select(SPACE)}
        # But for the anchors, which are always tested.
        assert best_per_budget_group(results, 1) == (0, 1, 2, 5, 6, 8)
    nothing = results_of(dict.fromkeys(MIOU, NAN))
    for chosen_by in (
        lambda: Selection('pareto', nothing).select(SPACE),
        lambda: best_per_budget_group(nothing, 1),
    ):
        with pytest.raises(ValueError, match='mIoU is NaN for all 8 stitches'):
            chosen_by()


def test_only_measured_stitches_are_picked():
    few = replace(RESULTS, stitches=[r for r in RESULTS.stitches if r.id in (2, 5)])
    assert pick(SPACE, '900G', COSTS, few).id == 5
    with pytest.raises(ValueError, match=r'budget 2G: no evaluated stitch .* stitch 2'):
        pick(SPACE, '2G', COSTS, few)
    for results in (RESULTS, None):
        words = r'budget 0.5G: .* stitch 0 \(fast\[0:3\]\) with 1G'
        with pytest.raises(ValueError, match=words):
            pick(SPACE, '0.5G', COSTS, results)


@pytest.mark.parametrize(
    ('stitches', 'ids'),
    [
        ('all', (0, 1, 2, 3, 5, 6, 7, 8)),
        ('anchors', (0, 1)),
        (5, (5,)),
        ('8,0, 3', (8, 0, 3)),
        (range(2, 4), (2, 3)),
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
    tested.check(SPACE, counted=True)
    Selection('12%', results_of({0: 10, 1: 30})).check(SPACE, counted=True)


WORDS = "allowed: 'all', 'anchors', .*each once.*option: --stitch-id"
NEEDS = 'which budgets go by .option: --results'


@pytest.mark.parametrize(
    ('stitches', 'costs', 'words'),
    [
        *[(s, None, WORDS) for s in ('some', '1-3', '', [], [1, 1], '1,', [1.5])],
        *[(s, None, 'allowed are 0-3, 5-8') for s in (4, '0,4')],
        ('4G,5', COSTS, "budget='5'; allowed: positive numbers"),
        ('4ms', COSTS.measured(COSTS.setup), 'latency .* not measured.* --latency'),
        ('4G', None, NEEDS),
        ('pareto', COSTS, 'a stitches.json of .*, for pareto .option: --results'),
    ],
)
def test_what_cannot_be_selected(stitches, costs, words):
    with pytest.raises(ValueError, match=words):
        Selection(stitches).select(SPACE, costs)


@pytest.fixture
def screened():
    """Anchors of 0 and 100 G; groups are ten wide: 0-10, 10-20, ..."""
    figures = {0: (0, 10), 1: (100, 20), 2: (1, 30), 3: (9, 40), 5: (8, 40)}
    figures |= {6: (31, 5), 7: (39, 7), 8: (95, 90)}
    costs = {i: Cost(gflops * 10**9, 1) for i, (gflops, _) in figures.items()}
    scores = {i: dict(mIoU=score) for i, (_, score) in figures.items()}
    return StitchResults.collect(SPACE, replace(COSTS, costs=costs), scores, 5)


def test_the_best_of_every_group_and_the_anchors(screened):
    assert best_per_budget_group(screened, 1) == (0, 1, 3, 7, 8)
    assert best_per_budget_group(screened, 2) == (0, 1, 3, 5, 6, 7, 8)
    assert best_per_budget_group(screened, 9) == SPACE.ids
    lower = replace(screened, directions=dict(mIoU='lower'))
    assert best_per_budget_group(lower, 1) == (0, 1, 6)
    with pytest.raises(ValueError, match='keep=0; allowed: 1'):
        best_per_budget_group(screened, 0)


def test_screened_results_count_for_nothing(screened):
    stitches = [
        replace(r, metrics=dict(mIoU=50 - r.id), flops=r.id, num_images=100)
        for r in screened.stitches[::3]
    ]
    both = screened.updated_by(replace(screened, stitches=stitches))
    assert tuple(r.id for r in both.stitches) == SPACE.ids
    assert both.scores() == {0: 50, 3: 47, 7: 43}
    assert both.front() == [0]
    assert both.rank_correlation() == pytest.approx(-1)


def at(size, factor, better):
    """The small results at another size: costs by a factor, RMSE lower by so much."""
    rows = [
        replace(
            r,
            flops=int(r.flops * factor),
            latency=r.latency * factor,
            metrics=dict(r.metrics, RMSE=r.metrics['RMSE'] - better),
        )
        for r in small_results.RESULTS.stitches
    ]
    return replace(small_results.RESULTS, stitches=rows, input_size=size)


# RMSE 0.9, 0.5, 0.8, 0.6 at 3, 30, 20, 10 GFLOPs and 9, 8, 4, 6 ms.
LARGE, SMALL = small_results.RESULTS, at((16, 24), 0.25, -0.15)
AT_SMALL, AT_LARGE = SMALL.input_size, LARGE.input_size


def test_pairs_on_one_front():
    rows = joint_rows([LARGE, SMALL])
    costs = cost_column(rows, 'flops')
    scores = {key: row.metrics['RMSE'] for key, row in rows.items()}
    assert len(costs) == len(scores) == 8
    assert costs[5, AT_SMALL, 'float32'] == 2.5e9
    assert scores[5, AT_LARGE, 'float32'] == small_results.RMSE[5]
    front = pareto_front(costs, scores, higher_is_better=False)
    wanted = [*[(i, AT_SMALL) for i in (0, 5, 1)], (5, AT_LARGE), (1, AT_LARGE)]
    assert [variant[:2] for variant in front] == wanted
    assert cost_column(rows, 'latency')[2, AT_SMALL, 'float32'] == 1
    with pytest.raises(ValueError, match='each size and precision once'):
        joint_rows([LARGE, LARGE])
    controller = BudgetController(costs, scores, False, target_ms=10, load=1e-9)
    assert controller.stitch[:2] == (5, AT_LARGE)
    for _ in range(20):  # everything takes twice as long
        controller.update(2e-9 * costs[controller.stitch])
    assert controller.stitch[:2] == (5, AT_SMALL)


@pytest.mark.parametrize(
    ('budget', 'pair'),
    # Within 9G there is no other stitch of the large size.
    [('9G', (1, AT_SMALL)), ('12G', (5, AT_LARGE)), ('1.6ms', (5, AT_SMALL))],
)
def test_the_best_pair_within_a_budget(budget, pair):
    for results in ([LARGE, SMALL], [SMALL, LARGE]):
        choice = pick(SPACE, budget, results=results)
        assert choice[:2] == pair
        assert choice.reason.endswith('images of {}x{}'.format(*pair[1]))


@pytest.mark.parametrize(
    ('device', 'on', 'words'),
    [
        (f'{processor()}, 2 threads', None, None),
        ('a board', None, f'measured on a board, not on {processor()}; tools'),
        (
            f'{processor()}, 2 threads',
            ['H100'],
            f'{processor()}, 2 threads, not on H100',
        ),
        (None, ['H100', 'A100'], 'an unknown device, not on H100 or A100; '),
    ],
)
def test_milliseconds_of_another_device_are_named(caplog, device, on, words):
    setup = device and Setup(device, 1, 'float32')
    measured = replace(RESULTS, setup=setup)
    chosen = pick(SPACE, '6ms', results=measured, on=on).id
    assert chosen == pick(SPACE, '6ms', results=measured, on=[str(device)]).id
    said = [m for m in caplog.messages if m.startswith('Warning: milliseconds')]
    assert len([m for m in said if words and words in m]) == (words is not None)
    caplog.clear()
    pick(SPACE, '6G', results=measured, on=on)  # FLOPs are equal everywhere
    assert caplog.messages == []
