import pytest

from snnet_mm.stitching import group_by_cost


def test_groups_of_the_published_stitches(published):
    costs = {i: v['flops'] for i, v in published.items()}
    groups = group_by_cost(costs, 10e9)
    assert [len(g) for g in groups] == [1] + 11 * [12] + [1]
    assert groups[0] == (0,)
    assert groups[-1] == (1,)
    assert sorted(i for g in groups for i in g) == sorted(costs)


@pytest.mark.parametrize(
    ('costs', 'step', 'groups'),
    [
        # The first of a group counts, not the one before: 0 and 8 are too far apart.
        ({0: 0, 1: 4, 2: 8}, 5, [(0, 1), (2,)]),
        # Exactly a step away still belongs.
        ({0: 0, 1: 5, 2: 5.5}, 5, [(0, 1), (2,)]),
        ({4: 30, 2: 10, 9: 20}, 1, [(2,), (9,), (4,)]),
        ({5: 1, 3: 1, 4: 1}, 1, [(3, 4, 5)]),
        ({0: 0, 1: 100}, 1000, [(0, 1)]),
    ],
)
def test_groups_by_hand(costs, step, groups):
    assert group_by_cost(costs, step) == groups


@pytest.mark.parametrize('step', [0, -1, float('nan')])
def test_step_must_be_positive(step):
    with pytest.raises(ValueError, match=r'config key: sampler\.step') as error:
        group_by_cost({0: 1}, step)
    assert f'step={step!r}' in str(error.value)
