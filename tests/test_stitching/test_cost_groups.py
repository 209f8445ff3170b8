import pytest

from snnet_mm.stitching import group_by_cost, split_cost_range


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
    with pytest.raises(ValueError, match=f'step={step}; .*config key: sampler.step'):
        group_by_cost({0: 1}, step)
    with pytest.raises(ValueError, match='num_groups=.*config key: sampler.num_groups'):
        split_cost_range({0: 1}, step)
