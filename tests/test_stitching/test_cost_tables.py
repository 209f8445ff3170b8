import pytest

from snnet_mm.stitching import UNITS, group_by_cost, parse_budget, split_cost_range


@pytest.mark.parametrize(
    ('text', 'cost', 'limit'),
    [
        ('33.5G', 'flops', 33.5e9),
        ('.5G', 'flops', 0.5e9),
        ('60M', 'params', 60e6),
        (' 2.5 ms ', 'latency', 2.5),
        ('300MB', 'memory', 300e6),
    ],
)
def test_budgets_are_read_and_written(text, cost, limit):
    budget = parse_budget(text)
    assert budget == (cost, limit)
    written = UNITS[cost].budget(limit)
    assert str(budget) == written
    assert float(written.rstrip('GMBms')) == float(text.strip(' GMBms'))
    assert parse_budget(written) == budget


@pytest.mark.parametrize(
    'text', ['120', 120, '3KB', '3g', '0.0ms', '-3G', '', 'G', 'nanG', '1,5G', '1e3G']
)
def test_nonsense_is_refused_and_says_what_is_allowed(text):
    words = rf"budget={text!r}; .*'120G' \(multiply-accumulates.*option: --budget"
    with pytest.raises(ValueError, match=words):
        parse_budget(text)


def test_cells_of_tables():
    costs = dict(flops=1_234_567, params=0, latency=25, memory=7_654_321)
    cells = [UNITS[name].cell(value) for name, value in costs.items()]
    assert cells == ['0.00123', '0.00', '25.00', '7.7']


def test_groups_of_the_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    groups = group_by_cost(costs, 10e9)
    assert [len(g) for g in groups] == [1] + 11 * [12] + [1]
    assert (groups[0], groups[-1]) == ((0,), (1,))
    assert sorted(i for g in groups for i in g) == sorted(costs)


@pytest.mark.parametrize(
    ('costs', 'step', 'groups'),
    [
        # The first of a group counts; exactly a step away from it still belongs.
        ({0: 0, 1: 4, 2: 8}, 5, [(0, 1), (2,)]),
        ({0: 0, 1: 5, 2: 5.5}, 5, [(0, 1), (2,)]),
        ({4: 30, 5: 10, 2: 10, 9: 20}, 1, [(2, 5), (9,), (4,)]),
    ],
)
def test_groups_by_hand(costs, step, groups):
    assert group_by_cost(costs, step) == groups


def test_parts_of_the_range_of_costs():
    costs = {0: 0, 1: 100, 2: 24, 3: 25, 5: 75, 6: 76}
    assert split_cost_range(costs, 4) == [(0, 2), (3,), (5, 6, 1)]
    assert split_cost_range({3: 7, 1: 7}, 5) == [(1, 3)]


@pytest.mark.parametrize('step', [0, -1, float('nan')])
def test_steps_and_numbers_of_groups_are_positive(step):
    for group, key in ((group_by_cost, 'step'), (split_cost_range, 'num_groups')):
        with pytest.raises(ValueError, match=f'{key}={step}; .*sampler.{key}'):
            group({0: 1}, step)
