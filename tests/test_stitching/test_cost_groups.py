import pytest

from snnet_mm.stitching import default_step, group_by_cost, split_cost_range


def test_group_by_cost_of_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    groups = group_by_cost(costs, 10e9)
    assert [len(g) for g in groups] == [1] + 11 * [12] + [1]
    assert (groups[0], groups[-1]) == ((0,), (1,))
    assert sorted(i for g in groups for i in g) == sorted(costs)
    assert group_by_cost(costs, default_step(costs)) == groups
    smaller = {i: cost / 100 for i, cost in costs.items()}  # another size of image
    assert group_by_cost(smaller, default_step(smaller)) == groups


def test_cost_groups_by_hand():
    # Not multiples of the step count, but the first of a group; exactly a step away
    # from it still belongs.
    assert group_by_cost({0: 0, 1: 4, 2: 8}, 5) == [(0, 1), (2,)]
    assert group_by_cost({0: 0, 1: 5, 2: 5.5}, 5) == [(0, 1), (2,)]
    assert group_by_cost({4: 30, 5: 10, 2: 10, 9: 20}, 1) == [(2, 5), (9,), (4,)]
    few = {0: 10, 1: 20, 2: 21, 3: 90}
    assert group_by_cost(few, default_step(few)) == [(0,), (1,), (2,), (3,)]
    costs = {0: 0, 1: 100, 2: 24, 3: 25, 5: 75, 6: 76}
    assert split_cost_range(costs, 4) == [(0, 2), (3,), (5, 6, 1)]
    assert split_cost_range({3: 7, 1: 7}, 5) == [(1, 3)]


@pytest.mark.parametrize('step', [0, -1, float('nan')])
def test_cost_groups_settings_are_positive(step):
    for group, key in ((group_by_cost, 'step'), (split_cost_range, 'num_groups')):
        with pytest.raises(ValueError, match=f'{key}={step} .*sampler.{key}'):
            group({0: 1}, step)
