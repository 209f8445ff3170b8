"""Plans for budgets: a knapsack of the cost and the sensitivity of each branch."""

from collections.abc import Callable, Sequence
from functools import partial

from snnet_mm.anchors import BranchView
from snnet_mm.runtime.budgets import SHARE, UNITS, Budget
from snnet_mm.stitching import Plan
from snnet_mm.utils import check

from .knapsack import Option, cheapest_plan, choose_plan, harm_of
from .sensitivity import StepRecord, widths_of
from .step_costs import StepCosts

# Budgets by default, shares of the network's FLOPs.
DEFAULT_SHARES = 0.75, 0.5, 0.33, 0.25
MIN_GAIN = 0.2  # share of the FLOPs that the cheapest plan saves, unless forced


def reachable(
    costs: StepCosts,
    budgets: Sequence[Budget],
    say: Callable[[str], None],
    force: bool = False,
) -> list[tuple[Budget, Budget]]:
    """Return the budgets that a plan can meet, each with the cost that it bounds.

    Without any, they are :data:`DEFAULT_SHARES` of the network's FLOPs or, if neck and
    head cost too much for these, of the FLOPs of the branches.

    Raises:
        ValueError: If a budget is below the cheapest plan, or not below the network; if
            no plan saves :data:`MIN_GAIN` of the FLOPs, unless ``force``.
    """
    view, given, found = costs.view, bool(budgets), []
    whole = view.widths
    total = costs.of('flops', whole)
    least = costs.of('flops', _cheapest(costs, 'flops'))
    steps = (i for i in range(view.depth) if len(_units(view, i)) > 1)
    branches = sum(costs.step('flops', i, whole[i]) for i in steps)
    of = f'all FLOPs of {costs.scope}' if costs.scope else 'all FLOPs'
    say(
        f'Branches are {branches / total:.0%} of {of}: the smallest budget is '
        f'{least / total:.0%}'
    )
    expected = f'True, to save less than {MIN_GAIN:.0%} of {of}'
    check(force or least <= (1 - MIN_GAIN) * total, 'argument: force', force, expected)
    if not given:
        budgets = [Budget(SHARE, share) for share in DEFAULT_SHARES]
        if least > min(DEFAULT_SHARES) * total:
            limits = (total - (1 - share) * branches for share in DEFAULT_SHARES)
            budgets = [Budget('flops', limit) for limit in limits]
    for budget in budgets:
        bound = budget.of([total])
        cost, unit = partial(costs.of, bound.cost), UNITS[bound.cost]
        cheapest = _cheapest(costs, bound.cost)
        expected = f'below {unit.budget(cost(whole))}, the cost of the network'
        check(bound.limit < cost(whole), 'argument: budgets', str(budget), expected)
        if cost(cheapest) <= bound.limit:
            found.append((budget, bound))
            continue
        expected = f'at least {unit.budget(cost(cheapest))}, the cheapest plan: '
        expected += costs.write(cheapest)
        check(not given, 'argument: budgets', str(budget), expected)
        say(f'  {unit.budget(bound.limit)}: below the cheapest plan, left out')
    tried = [str(budget) for budget in budgets]
    check(found, 'argument: budgets', tried, 'budgets above the cheapest plan')
    return found


def chosen_plans(
    records: Sequence[StepRecord | None],
    costs: StepCosts,
    bounds: Sequence[tuple[Budget, Budget]],
    say: Callable[[str], None],
) -> list[Plan]:
    """Return the plan of least harm within each budget of :func:`reachable`."""
    plans, whole = [], costs.of('flops', costs.view.widths)
    for budget, bound in bounds:
        cost, unit = partial(costs.of, bound.cost), UNITS[bound.cost]
        options = [_options(r, costs, bound.cost, i) for i, r in enumerate(records)]
        # What every plan costs beside its steps, such as the head.
        base = cost(costs.view.widths) - sum(map(_whole_cost, options))
        plan = choose_plan(options, bound.limit - base, costs.space.read)
        share, harm = costs.of('flops', plan) / whole, harm_of(options, plan)
        found = f'{unit.budget(cost(plan))} ({share:.0%} of the FLOPs)'
        say(f'  {budget}: {found}, divergence {harm:.4f}: {costs.write(plan)}')
        plans.append(plan)
    return plans


def _cheapest(costs: StepCosts, cost: str) -> Plan:
    """Return the cheapest plan of a network."""
    options = [_options(None, costs, cost, i) for i in range(costs.view.depth)]
    return cheapest_plan(options, costs.space.read)


def _whole_cost(options: Sequence[Option]) -> float:
    """Return the cost of a step that runs whole."""
    return max(options).cost


def _units(view: BranchView, step: int) -> list[int]:
    """Return the numbers of units among which plans choose for a step."""
    if view[step] is None:
        return [view.widths[step]]
    skipped = [0] if step in view.skippable else []
    return skipped + widths_of(view.widths[step])


def _options(
    record: StepRecord | None, costs: StepCosts, cost: str, step: int
) -> list[Option]:
    """Return the options of a step; without a record, their harm is 0."""
    whole, options = costs.view.widths[step], []
    for units in _units(costs.view, step):
        harm = 0.0 if units == whole or record is None else record.harm(units)
        options.append(Option(units, costs.step(cost, step, units), harm))
    return options
