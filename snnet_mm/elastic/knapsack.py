"""The plan of least harm within a budget."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from snnet_mm.stitching import Plan

SWEEP = 400  # prices of a unit of cost that are tried


class Option(NamedTuple):
    """A step with a number of hidden units: its cost, and the harm that it does."""

    units: int
    cost: float
    harm: float


def choose_plan(
    steps: Sequence[Sequence[Option]], limit: float, cost: Callable[[Plan], float]
) -> Plan | None:
    """Return the plan of least harm whose cost is within a limit, or None.

    Harms and costs of steps are assumed to be additive. Lagrange multipliers, which are
    prices of a unit of cost, yield Pareto-optimal plans. The rest of the budget of the
    best one is spent on the options that reduce harm most per cost. ``cost`` returns
    the cost of a plan, in which adjacent gaps share one map.

    Examples:
        >>> steps = [
        ...     [Option(2, 4, 0), Option(0, 1, 0.5)],
        ...     [Option(8, 4, 0), Option(4, 2, 0.1)],
        ... ]
        >>> choose_plan(steps, 6, lambda plan: (1, 0, 4)[plan[0]] + plan[1] / 2)
        (2, 4)
    """
    within = [plan for plan in _plans(steps) if cost(plan) <= limit]
    if not within:
        return None
    best = min(within, key=lambda plan: harm_of(steps, plan))
    return _filled(best, steps, limit, cost)


def harm_of(steps: Sequence[Sequence[Option]], plan: Plan) -> float:
    """Return the sum of the harms of a plan's options."""
    chosen = zip(steps, plan, strict=True)
    return sum(o.harm for options, units in chosen for o in options if o.units == units)


def _plans(steps: Sequence[Sequence[Option]]) -> set[Plan]:
    """Return the plans of least ``harm + price * cost``, for prices of all sizes."""
    rates = [
        (a.harm - b.harm) / (b.cost - a.cost)
        for options in steps
        for a in options
        for b in options
        if b.cost > a.cost and a.harm > b.harm
    ]
    if not rates:
        return {tuple(max(options).units for options in steps)}
    prices = np.geomspace(min(rates) / 2, 2 * max(rates), SWEEP)
    plans = set()
    for price in (0.0, *prices):
        best = (min(o, key=lambda x: (x.harm + price * x.cost, x.cost)) for o in steps)
        plans.add(tuple(option.units for option in best))
    return plans | {*cheapest_plans(steps)}


def cheapest_plans(steps: Sequence[Sequence[Option]]) -> tuple[Plan, Plan]:
    """Return the plan of the cheapest steps, and that of the fewest units.

    The latter is cheaper if its gaps share maps.
    """
    by_step = (min(o, key=lambda x: (x.cost, x.harm)) for o in steps)
    return tuple(o.units for o in by_step), tuple(min(o).units for o in steps)


def _filled(
    plan: Plan,
    steps: Sequence[Sequence[Option]],
    limit: float,
    cost: Callable[[Plan], float],
) -> Plan:
    """Spend the rest of a budget."""
    while True:
        gains = []
        for i, options in enumerate(steps):
            (now,) = (o for o in options if o.units == plan[i])
            for option in options:
                if option.harm < now.harm and option.cost > now.cost:
                    rate = (now.harm - option.harm) / (option.cost - now.cost)
                    gains.append((rate, i, option.units))
        for _, i, units in sorted(gains, reverse=True):
            better = (*plan[:i], units, *plan[i + 1 :])
            if cost(better) <= limit:
                plan = better
                break
        else:
            return plan
