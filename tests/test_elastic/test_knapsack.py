"""Plans of least harm, against all plans of small cases."""

import random
from itertools import product

import pytest

from snnet_mm.elastic.knapsack import Option, choose_plan


@pytest.fixture(params=range(5))
def steps(request):
    """Five steps of three widths; more units cost more and do less harm."""
    draw = random.Random(request.param)
    return [
        [
            Option(8, 8 * price, 0.0),
            Option(4, 4.5 * price, harm * draw.uniform(0.1, 0.7)),
            Option(0, 0.5, harm),
        ]
        for price, harm in ((draw.uniform(1, 3), draw.uniform(0, 1)) for _ in range(5))
    ]


def test_choose_plan_spends_budget_close_to_best(steps):
    """It is the best of all at costs of the convex front."""
    plans = {
        tuple(o.units for o in options): (
            sum(o.cost for o in options),
            sum(o.harm for o in options),
        )
        for options in product(*steps)
    }

    def choose(limit):
        return choose_plan(steps, limit, lambda plan: plans[plan][0])

    def least_harm(limit):
        return min(harm for cost, harm in plans.values() if cost <= limit)

    for price in (0.001, 0.01, 0.03, 0.1, 1):
        limit, _ = min(plans.values(), key=lambda p: p[1] + price * p[0])
        assert plans[choose(limit)][1] == pytest.approx(least_harm(limit))
    cheapest, dearest = (of(c for c, _ in plans.values()) for of in (min, max))
    worst = max(option.harm for options in steps for option in options)
    for share in (0.1, 0.3, 0.5, 0.7, 0.9):
        limit = cheapest + share * (dearest - cheapest)
        found = choose(limit)
        cost, harm = plans[found]
        assert cost <= limit
        assert harm <= least_harm(limit) + worst / 2
        for i, options in enumerate(steps):
            for option in options:  # no single change fits and does less harm
                other = plans[(*found[:i], option.units, *found[i + 1 :])]
                assert other[0] > limit or other[1] >= harm - 1e-12
    assert choose(cheapest * 0.999) is None
    assert choose(cheapest) == (0,) * 5
    assert choose(dearest) == (8,) * 5


def test_choose_plan_counts_cost_of_whole_plan():
    """Adjacent gaps share one map, so that skipping two costs as much as one."""
    steps = [[Option(4, 10, 0.0), Option(0, 2, 1.0)]] * 4

    def cost(plan):
        gaps = sum(a == 0 and b != 0 for a, b in zip(plan, (*plan[1:], 1), strict=True))
        return 10 * sum(map(bool, plan)) + 4 * gaps

    assert choose_plan(steps, 4, cost) == (0, 0, 0, 0)
    assert cost(choose_plan(steps, 24, cost)) == 24
    assert choose_plan(steps, 3.9, cost) is None
