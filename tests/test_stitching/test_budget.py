from dataclasses import replace
from pathlib import Path

import pytest

from snnet_mm.stitching import (
    Cost,
    CostTable,
    Setup,
    StitchResults,
    TwoWaySpace,
    format_cost,
    parse_budget,
    pick,
    read_published,
)

SPACE = TwoWaySpace((3, 7))
# The higher the id, the cheaper in parameters and the slower.
COSTS = CostTable(
    {
        s.id: Cost(10**9 * (s.id + 1), 10**6 * (20 - s.id), 2.0 * s.id + 1)
        for s in SPACE
    },
    (48, 64),
    SPACE.fingerprint,
    Setup('cpu', 1, 'float32'),
)
MIOU = {0: 10, 1: 30, 2: 20, 3: 40, 5: 40, 6: 15, 7: 60, 8: 50}
RESULTS = StitchResults.collect(
    SPACE, COSTS, {i: dict(mIoU=v, aAcc=100 - v) for i, v in MIOU.items()}
)


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('120G', 'flops', 120e9),
        ('0.98G', 'flops', 0.98e9),
        ('.5G', 'flops', 0.5e9),
        ('60M', 'params', 60e6),
        ('25ms', 'latency', 25),
        (' 2.5 ms ', 'latency', 2.5),
    ],
)
def test_budgets(text, cost, limit):
    assert parse_budget(text) == (cost, limit)


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('120', "'120' has no unit"),
        (120, '120 has no unit'),
        ('3MB', "has the unit 'MB'"),
        ('3g', "has the unit 'g'"),
        ('25s', "has the unit 's'"),
        ('0G', 'buys nothing'),
        ('0.0ms', 'buys nothing'),
        ('-3G', "budget '-3G'; "),
        ('', "budget ''; "),
        ('G', "budget 'G'; "),
        ('nanG', "budget 'nanG'; "),
        ('1,5G', "budget '1,5G'; "),
        ('1e3G', "budget '1e3G'; "),
        ('cheap', "budget 'cheap'; "),
    ],
)
def test_nonsense_is_refused_and_says_what_is_allowed(text, words):
    with pytest.raises(ValueError, match=words) as error:
        parse_budget(text)
    assert "'120G' (multiply-accumulates" in str(error.value)
    assert 'option: --budget' in str(error.value)


@pytest.mark.parametrize('text', ['33.5G', '0.56M', '25ms'])
def test_costs_are_written_as_budgets(text):
    budget = parse_budget(text)
    assert format_cost(*budget) == str(budget) == text


@pytest.mark.parametrize(
    ('budget', 'best'),
    [
        ('1G', 0),
        ('3G', 1),
        ('4G', 3),
        ('6.5G', 3),  # stitch 5 is as good, and dearer
        ('7G', 3),
        ('8G', 7),
        ('900G', 7),
        ('13M', 7),
        ('12.5M', 8),
        ('15M', 7),
        ('14ms', 3),
        ('15ms', 7),
    ],
)
def test_the_best_measured_stitch_within_a_budget(budget, best):
    assert pick(SPACE, budget, COSTS, RESULTS) == best
    assert pick(SPACE, budget, results=RESULTS) == best
    assert pick(SPACE, parse_budget(budget), COSTS, RESULTS) == best


def test_a_metric_may_be_better_when_lower():
    rmse = replace(RESULTS, metric='aAcc', higher_is_better=False)
    assert pick(SPACE, '8G', COSTS, rmse) == 7
    wrong = replace(rmse, higher_is_better=True)
    assert pick(SPACE, '8G', COSTS, wrong) == 0


def test_of_equally_good_stitches_the_cheapest_is_picked():
    tied = replace(RESULTS, stitches=[r for r in RESULTS.stitches if r.id in (3, 5)])
    assert pick(SPACE, '900G', COSTS, tied) == 3
    assert pick(SPACE, '900M', COSTS, tied) == 5


def test_only_measured_stitches_are_picked():
    few = replace(RESULTS, stitches=[r for r in RESULTS.stitches if r.id in (2, 5)])
    assert pick(SPACE, '900G', COSTS, few) == 5
    with pytest.raises(ValueError, match=r'budget 2G: no evaluated stitch .* stitch 2'):
        pick(SPACE, '2G', COSTS, few)


@pytest.mark.parametrize(
    ('budget', 'cheapest'),
    [
        ('0.5G', r'budget 0.5G: .* stitch 0 \(fast\[0:3\]\) with 1G'),
        ('1M', r'budget 1M: .* stitch 8 .* with 12M'),
        ('0.5ms', r'budget 0.5ms: .* stitch 0 .* with 1ms'),
    ],
)
@pytest.mark.parametrize('results', [RESULTS, None])
def test_an_impossible_budget_names_the_cheapest_stitch(budget, cheapest, results):
    with pytest.raises(ValueError, match=cheapest):
        pick(SPACE, budget, COSTS, results)


def test_what_a_budget_needs():
    with pytest.raises(ValueError, match='needs a cost table or results .*--results'):
        pick(SPACE, '3G')
    counted = CostTable({i: Cost(*COSTS[i][:2]) for i in COSTS}, (48, 64))
    with pytest.raises(ValueError, match='latency .* not measured.* --latency'):
        pick(SPACE, '3ms', counted)
    with pytest.raises(ValueError, match='another stitching space'):
        pick(TwoWaySpace((3, 8)), '3G', COSTS, RESULTS)


def test_published_figures_are_picked_from(published):
    space = TwoWaySpace((12, 24))
    path = Path(__file__).parents[1] / 'data' / 'ade20k_setr_deit3_s_l.json'
    results = read_published(path, space, (512, 512))
    for budget, best in (('34G', 0), ('120G', 109), ('200G', 94), ('364G', 1)):
        assert pick(space, budget, results=results) == best
        limit = parse_budget(budget).limit
        assert published[best]['mIoU'] == max(
            v['mIoU'] for v in published.values() if v['flops'] <= limit
        )
