from dataclasses import replace

import pytest

from snnet_mm.stitching import (
    UNITS,
    Cost,
    CostTable,
    Setup,
    TwoWaySpace,
    group_by_cost,
    parse_budget,
    split_cost_range,
)
from snnet_mm.stitching.cost_table import default_step

SPACE = TwoWaySpace((3, 7))
COUNTED = CostTable(
    {s.id: Cost(100 + s.id, 10 + s.id) for s in SPACE}, (48, 64), SPACE.fingerprint
)
SETUP = Setup('cpu, 2 threads', 4, 'float32')
LATENCY = {i: 1.5 * i for i in SPACE.ids}
MEASURED = COUNTED.measured(SETUP, LATENCY, {i: 1000 * i for i in SPACE.ids})


def test_columns():
    assert COUNTED.column('flops')[7] == COUNTED[7].flops == 107
    assert MEASURED.column('latency') == LATENCY
    assert MEASURED.column('memory')[3] == MEASURED[3].memory == 3000
    assert MEASURED[7][:2] == COUNTED[7][:2] == (107, 17)
    MEASURED.check_same_model(COUNTED)
    replace(COUNTED, space=None).check_same_model(MEASURED)
    with pytest.raises(ValueError, match='stitch_table.py CONFIG --latency'):
        COUNTED.column('latency')
    only_latency = COUNTED.measured(SETUP, LATENCY)
    with pytest.raises(ValueError, match='memory .* was not measured.* --memory'):
        only_latency.column('memory')
    with pytest.raises(ValueError, match="cost='joules'; allowed: 'flops', 'params'"):
        COUNTED.column('joules')


@pytest.mark.parametrize('table', [COUNTED, MEASURED])
def test_json_gives_an_equal_table(table, tmp_path):
    path = tmp_path / 'costs.json'
    table.save(path, checks=[1, 2])
    assert CostTable.read(path) == table


@pytest.mark.parametrize(
    ('other', 'words'),
    [
        (dict(input_size=(32, 32)), 'my.json holds for images of 32x32.*at 48x64'),
        (dict(space='0'), 'my.json is of another stitching space'),
        (dict(scope='neck alone'), 'costs of neck alone, wanted .* of the whole model'),
        (dict(costs={0: Cost(100, 10)}), r'do not share stitches \[1, 2, 3, 5'),
        (
            dict(costs={**COUNTED.costs, 5: Cost(105, 16)}),
            '5 has 105 FLOPs and 16 parameters there, 105 FLOPs and 15 parameters here',
        ),
    ],
)
def test_tables_of_other_models_are_refused(other, words):
    with pytest.raises(ValueError, match=words):
        replace(COUNTED, **other).check_same_model(COUNTED, 'my.json')


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('33.5G', 'flops', 33.5e9),
        ('4.1M', 'params', 4100000),  # not 4099999.9999999995
        (' 2.5 ms ', 'latency', 2.5),
        ('300MB', 'memory', 300e6),
    ],
)
def test_budgets_are_read_and_written(text, cost, limit):
    budget = parse_budget(text)
    assert budget == (cost, limit)
    assert str(budget) == UNITS[cost].budget(limit)
    assert parse_budget(str(budget)) == budget


@pytest.mark.parametrize(
    ('text', 'limit'), [('50%', 100), (' 12.5 %', 25), ('100%', 200), ('0.5%', 1)]
)
def test_shares_are_of_the_largest_flops(text, limit):
    budget = parse_budget(text)
    assert str(budget) == text.replace(' ', '')
    assert budget.of([40, 200, 3]) == ('flops', limit)
    assert parse_budget('2G').of([40]) == ('flops', 2e9)


def test_a_written_budget_buys_the_cost():
    texts = {394_801: '0.0003949G', 12_345_000_000_000: '12350G', 10**9: '1G'}
    for flops, text in (texts | {3 * 1.1e9: '3.3G'}).items():
        assert UNITS['flops'].budget(flops) == text
        assert parse_budget(text).limit >= flops * (1 - 1e-12)


@pytest.mark.parametrize(
    'text', ['120', 120, '3KB', '0.0ms', '', 'nanG', '1e3G', '0%', '-5%', '%']
)
def test_nonsense_is_refused_and_says_what_is_allowed(text):
    words = rf"budget={text!r}; .*'120G' \(multiply-accumulates.*option: --budget"
    with pytest.raises(ValueError, match=words):
        parse_budget(text)


def test_groups_of_the_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    groups = group_by_cost(costs, 10e9)
    assert [len(g) for g in groups] == [1] + 11 * [12] + [1]
    assert (groups[0], groups[-1]) == ((0,), (1,))
    assert sorted(i for g in groups for i in g) == sorted(costs)


def test_the_default_step_makes_the_groups_of_the_paper(published):
    costs = {i: v['flops'] for i, v in published.items()}
    step = default_step(costs)
    assert group_by_cost(costs, step) == group_by_cost(costs, 10e9)
    smaller = {i: cost / 100 for i, cost in costs.items()}  # another size of image
    assert group_by_cost(smaller, default_step(smaller)) == group_by_cost(costs, step)
    few = {0: 10, 1: 20, 2: 21, 3: 90}
    assert group_by_cost(few, default_step(few)) == [(0,), (1,), (2,), (3,)]
    even = {i: 7 + i for i in range(100)}  # 14 groups of 7 are as near as 12 of 9
    assert len(group_by_cost(even, default_step(even))) in (12, 13, 14)


def test_groups_by_hand():
    # The first of a group counts; exactly a step away from it still belongs.
    assert group_by_cost({0: 0, 1: 4, 2: 8}, 5) == [(0, 1), (2,)]
    assert group_by_cost({0: 0, 1: 5, 2: 5.5}, 5) == [(0, 1), (2,)]
    assert group_by_cost({4: 30, 5: 10, 2: 10, 9: 20}, 1) == [(2, 5), (9,), (4,)]


def test_parts_of_the_range_of_costs():
    costs = {0: 0, 1: 100, 2: 24, 3: 25, 5: 75, 6: 76}
    assert split_cost_range(costs, 4) == [(0, 2), (3,), (5, 6, 1)]
    assert split_cost_range({3: 7, 1: 7}, 5) == [(1, 3)]


@pytest.mark.parametrize('step', [0, -1, float('nan')])
def test_steps_and_numbers_of_groups_are_positive(step):
    for group, key in ((group_by_cost, 'step'), (split_cost_range, 'num_groups')):
        with pytest.raises(ValueError, match=f'{key}={step}; .*sampler.{key}'):
            group({0: 1}, step)
