"""Chains for budgets: a knapsack of costs and sensitivities at each image scale."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from snnet_mm.anchors import BranchView
from snnet_mm.runtime.budgets import SHARE, UNITS, Budget
from snnet_mm.stitching import Plan
from snnet_mm.utils import check

from .knapsack import Option, cheapest_plan, choose_plan, harm_of
from .runtime_costs import GraphTimes, RuntimeCosts
from .sensitivity import StepRecord, widths_of
from .step_costs import StepCosts

# Budgets by default, shares of the network's FLOPs.
DEFAULT_SHARES = 0.75, 0.5, 0.33, 0.25
MIN_GAIN = 0.2  # share of the FLOPs that the cheapest plan saves, unless forced
SCALES = 1, 0.85, 0.7, 0.6, 0.5  # of the sides of images, by default
# Chains per budget that are fitted and judged, and the divergence to expect of one
# that is worth it, relative to the least.
CANDIDATES, WORTH = 3, 3
# Shares of a budget in the runtime: chains are chosen for the first, and chosen again,
# in some rounds, if their graphs take more or less than the others. Times vary by a
# few percent.
AIM, LEAST, MOST, ROUNDS = 0.95, 0.9, 0.98, 3
# Costs in every setting: a scale or, in the runtime, a scale and a precision. The first
# is that of the network.
Costs = Mapping[Hashable, StepCosts | RuntimeCosts]


class Candidate(NamedTuple):
    """A chain for a budget: its scale, its plan and the divergence to expect.

    The network itself, in int8, may be one.
    """

    scale: float
    plan: Plan
    harm: float
    precision: str = 'fp32'

    @property
    def setting(self) -> tuple[float, str]:
        """The scale and the precision."""
        return self.scale, self.precision

    @property
    def place(self) -> str:
        """The scale and, if it is not fp32, the precision."""
        return f'{self.scale:g}x' + _suffix(self.precision)


def reachable(
    costs: Costs,
    budgets: Sequence[Budget],
    say: Callable[[str], None],
    force: bool = False,
    timed: Costs | None = None,
) -> list[tuple[Budget, Budget]]:
    """Return the budgets that a chain can meet, each with the cost that it bounds.

    Without any, they are :data:`DEFAULT_SHARES` of the network's FLOPs or, if neck and
    head cost too much for these, of the FLOPs of the branches. Milliseconds are those
    of ``timed``, by default of ``costs``.

    Raises:
        ValueError: If a budget is below the cheapest chain, or not below the network;
            if no chain saves :data:`MIN_GAIN` of the FLOPs, unless ``force``.
    """
    own, given, found = costs[1], bool(budgets), []
    view = own.view
    whole = view.widths
    total = own.of('flops', whole)
    least, _ = _cheapest(costs, 'flops')
    steps = (i for i in range(view.depth) if len(_units(view, i)) > 1)
    branches = sum(own.step('flops', i, whole[i]) for i in steps)
    of = f'all FLOPs of {own.scope}' if own.scope else 'all FLOPs'
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
        by, aim = (timed, AIM) if timed and bound.cost == 'latency' else (costs, 1)
        unit, most = UNITS[bound.cost], next(iter(by.values())).of(bound.cost, whole)
        lowest, cheapest = _cheapest(by, bound.cost)
        lowest /= aim
        expected = f'below {unit.budget(most)}, the cost of the network'
        check(bound.limit < most, 'argument: budgets', str(budget), expected)
        if lowest <= bound.limit:
            found.append((budget, bound))
            continue
        expected = f'at least {unit.budget(lowest)}, the cheapest plan: {cheapest}'
        check(not given, 'argument: budgets', str(budget), expected)
        say(f'  {unit.budget(bound.limit)}: below the cheapest plan, left out')
    tried = [str(budget) for budget in budgets]
    check(found, 'argument: budgets', tried, 'budgets above the cheapest plan')
    return found


def candidates_for(
    budgets: Sequence[tuple[Budget, Budget]],
    records: Sequence[StepRecord | None],
    whole_harms: Mapping[Hashable, float],
    costs: Costs,
    say: Callable[[str], None] = lambda line: None,
) -> list[list[Candidate]]:
    """Return the chains of least expected divergence within each budget.

    There is at most one per setting, the one of least harm there; its divergence is
    that of the whole network in the setting plus the harms of its branches. Those of
    more than :data:`WORTH` times the least are omitted.

    Args:
        budgets: Budgets of :func:`reachable`.
        records: Measurements of all steps.
        whole_harms: Divergence of the whole network in every setting.
        costs: Costs in every setting.
        say: Called with a line per budget.
    """
    found = []
    for budget, bound in budgets:
        candidates = []
        for setting, own in costs.items():
            options = [_options(r, own, bound.cost, i) for i, r in enumerate(records)]
            # What every plan costs beside its steps, such as the head.
            base = own.of(bound.cost, own.view.widths) - sum(map(_whole_cost, options))
            plan = choose_plan(options, bound.limit - base, own.space.read)
            if plan is not None:
                harm = whole_harms[setting] + harm_of(options, plan)
                candidates.append(Candidate(own.scale, plan, harm, own.precision))
        candidates.sort(key=lambda candidate: candidate.harm)
        least = max(candidates[0].harm, 0) if candidates else 0  # noise is below 0
        worth = [c for c in candidates if c.harm <= WORTH * least]
        found.append(worth[:CANDIDATES])
        expected = (f'{c.harm:.4f} at {c.place}' for c in found[-1])
        say(f'  {budget}: expected divergence {", ".join(expected)}')
    return found


def corrected(
    kept: Sequence[Candidate],
    bounds: Sequence[tuple[Budget, Budget]],
    records: Sequence[StepRecord | None],
    whole_harms: Mapping[Hashable, float],
    costs: Mapping[tuple[float, str], RuntimeCosts],
    graphs: GraphTimes,
    say: Callable[[str], None],
) -> list[Candidate]:
    """Return candidates whose graphs take the milliseconds of their budgets.

    Graphs are timed. Of those that take more than a budget, or far less, another chain
    is chosen in the same setting, for a limit corrected by the error of the prediction.

    Args:
        kept: A candidate per budget.
        bounds: Budgets of :func:`reachable`.
        records: See :func:`candidates_for`.
        whole_harms: Likewise.
        costs: Likewise, in every setting of the runtime.
        graphs: Measures milliseconds.
        say: Called with a line per correction, and per budget that is exceeded.
    """
    kept, tried = [*kept], {}
    pending = {n: c for n, c in enumerate(kept) if bounds[n][1].cost == 'latency'}
    for _ in range(ROUNDS):
        names = {n: costs[c.setting].write(c.plan) for n, c in pending.items()}
        times, again = graphs.of(names.values()), {}
        for n, c in pending.items():
            (budget, bound), ms = bounds[n], times[c.precision][names[n]]
            tried.setdefault(n, {})[c] = ms
            if LEAST * bound.limit <= ms <= MOST * bound.limit:
                continue
            own = costs[c.setting]
            predicted = own.of('latency', c.plan)
            say(f'  {names[n]}: {ms:.3g} ms, predicted {predicted:.3g}')
            limit = Budget('latency', AIM * bound.limit * predicted / ms)
            given = [(budget, limit)], records, whole_harms, {c.setting: own}
            (others,) = candidates_for(*given)
            if others and others[0] not in tried[n]:
                again[n] = others[0]
        pending = again
    for n, found in tried.items():
        (budget, bound), cheapest = bounds[n], min(found, key=found.get)
        within = [c for c, ms in found.items() if ms <= MOST * bound.limit]
        kept[n] = best = max(within, key=found.get, default=cheapest)
        ms = found[best]
        if ms > bound.limit:
            say(f'Warning: {budget}: {ms:.3g} ms in ONNX Runtime at best')
    return kept


def _cheapest(costs: Costs, cost: str) -> tuple[float, str]:
    """Return the cost of the cheapest chain, and its text."""
    found = []
    for own in costs.values():
        options = [_options(None, own, cost, i) for i in range(own.view.depth)]
        plan = cheapest_plan(options, own.space.read)
        found.append((own.of(cost, plan), own.write(plan) + _suffix(own.precision)))
    return min(found)


def _suffix(precision: str) -> str:
    return '' if precision == 'fp32' else f' in {precision}'


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
