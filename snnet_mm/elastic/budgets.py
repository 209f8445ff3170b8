"""From budgets to plans: what each branch costs and does, weighed in a knapsack."""

from collections.abc import Callable, Sequence
from functools import partial

from snnet_mm.runtime.budgets import UNITS, Budget
from snnet_mm.stitching import Plan
from snnet_mm.utils import check

from .knapsack import Option, cheapest_plans, choose_plan
from .sensitivity import StepRecord, widths_of
from .step_costs import StepCosts

# Budgets by default: shares of the FLOPs of all branches.
SHARES = 0.75, 0.5, 0.33, 0.25
KNOWN = 'flops', 'params', 'latency'


def chosen_plans(
    records: Sequence[StepRecord | None],
    costs: StepCosts,
    budgets: Sequence[Budget],
    say: Callable[[str], None],
) -> list[Plan]:
    """Return the plan of least harm within each budget.

    Args:
        records: What was measured of every step.
        costs: Costs of every step.
        budgets: The budgets; by default, :data:`SHARES` of what all branches cost, as
            far as they can be reached.
        say: Called with one line per budget.

    Raises:
        ValueError: If a budget is below the cheapest plan, or not below the network.
    """
    whole = costs.view.widths
    given = bool(budgets)
    if not given:
        total = costs.of('flops', whole)
        branches = sum(
            costs.step('flops', i, whole[i])
            for i, record in enumerate(records)
            if record is not None
        )
        budgets = [Budget('flops', total - (1 - s) * branches) for s in SHARES]
    plans = []
    for budget in budgets:
        bound = budget.of([costs.of('flops', whole)])
        cost = partial(costs.of, bound.cost)
        options = [_options(r, costs, bound.cost, i) for i, r in enumerate(records)]
        unit = UNITS[bound.cost]
        plan = choose_plan(options, bound.limit, cost)
        if plan is None:
            cheapest = min(*cheapest_plans(options), key=cost)
            wanted = f'at least {unit.budget(cost(cheapest))}, the cheapest plan: '
            check(not given, '--budgets', str(budget), wanted + costs.write(cheapest))
            say(f'  {unit.budget(bound.limit)}: below the cheapest plan, left out')
            continue
        wanted = f'below {unit.budget(cost(whole))}, the cost of the network'
        check(plan != whole, '--budgets', str(budget), wanted)
        chosen = zip(options, plan, strict=True)
        harm = sum(o.harm for of, units in chosen for o in of if o.units == units)
        share = costs.of('flops', plan) / costs.of('flops', whole)
        found = f'{unit.budget(cost(plan))} ({share:.0%} of the FLOPs)'
        say(f'  {budget}: {found}, divergence {harm:.4f}: {costs.write(plan)}')
        plans.append(plan)
    check(plans, '--budgets', [str(b) for b in budgets], 'budgets that can be reached')
    return plans


def _options(
    record: StepRecord | None, costs: StepCosts, cost: str, step: int
) -> list[Option]:
    """Return the numbers of units among which a plan chooses for a step."""
    whole = costs.view.widths[step]
    options = [Option(whole, costs.step(cost, step, whole), 0.0)]
    if record is None:
        return options
    widths = [n for n in widths_of(whole) if n < whole] if record.order else []
    for n in widths:
        options.append(Option(n, costs.step(cost, step, n), record.harm(n)))
    if 0 in record.divergence:
        # Half of a map, as adjacent gaps share one.
        price = costs.step(cost, step, 0) / 2
        options.append(Option(0, price, record.harm(0)))
    return options
