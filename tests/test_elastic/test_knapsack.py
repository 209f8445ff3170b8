"""Plans of least harm, against all plans of small cases."""

import random
from itertools import product

import pytest

from snnet_mm.elastic.knapsack import (
    Option,
    cheapest_plan,
    choose_plan,
    cost_of,
    harm_of,
)


@pytest.fixture(params=range(5))
def steps(request):
    """Five steps of three widths; more units cost more and do less harm."""
    draw = random.Random(request.param)
    return [
        [
            Option(8, 8e9 * price, 0.0),
            Option(4, 4.5e9 * price, harm * draw.uniform(0.1, 0.7)),
            Option(0, draw.uniform(0.5e9, 5e9), harm),
        ]
        for price, harm in ((draw.uniform(1, 3), draw.uniform(0, 1)) for _ in range(5))
    ]


@pytest.mark.parametrize('ends', [(), (1, 2)])
def test_choose_plan_is_the_best_of_all(steps, ends):
    """Its cost also includes maps that adjacent gaps share, unless one ends there."""
    plans = [tuple(o.units for o in options) for options in product(*steps)]
    known = {plan: (cost_of(steps, plan, ends), harm_of(steps, plan)) for plan in plans}
    cheapest, dearest = (of(cost for cost, _ in known.values()) for of in (min, max))
    for share in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1):
        limit = cheapest + share * (dearest - cheapest)
        cost, harm = known[choose_plan(steps, limit, ends)]
        assert cost <= limit
        least = min(harm for cost, harm in known.values() if cost <= limit)
        assert harm == pytest.approx(least, rel=1e-5)
    assert choose_plan(steps, cheapest * 0.999, ends) is None
    assert known[cheapest_plan(steps, ends)][0] == pytest.approx(cheapest)


def test_cost_of_adjacent_gaps_is_that_of_one_map():
    steps = [[Option(4, 10, 0.0), Option(0, 2 + i, 1.0)] for i in range(4)]
    assert cost_of(steps, (0, 0, 4, 0)) == 2 + 10 + 5
    assert cost_of(steps, (0, 0, 0, 0)) == 2
    assert cost_of(steps, (0, 0, 0, 0), ends=[1]) == 2 + 4
    assert cheapest_plan(steps) == choose_plan(steps, 2) == (0, 0, 0, 0)
    assert choose_plan(steps, 1.9) is None
    assert choose_plan(steps, 40) == (4, 4, 4, 4)
