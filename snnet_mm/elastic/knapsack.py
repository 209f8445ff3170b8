"""The plan of least harm within a budget."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from snnet_mm.stitching import Plan

Steps = Sequence[Sequence['Option']]
# The solver may exceed a limit by this share of the largest number.
ROUNDING, TRIES = 1e-6, 10


class Option(NamedTuple):
    """A step with a number of hidden units: its cost, and the harm that it does.

    The cost of 0 units is that of the map of a gap, which adjacent gaps share.
    """

    units: int
    cost: float
    harm: float


def choose_plan(steps: Steps, limit: float, ends: Collection[int] = ()) -> Plan | None:
    """Return the plan of least harm whose cost is within a limit, or None.

    Harms and costs of steps are assumed to be additive. The plan is the solution of an
    integer program.

    Args:
        steps: Options of every step.
        limit: Maximum cost of the plan.
        ends: Steps after which a gap ends: skipping the next one begins another.

    Examples:
        >>> steps = [
        ...     [Option(2, 4, 0), Option(0, 1, 0.5)],
        ...     [Option(8, 4, 0), Option(4, 2, 0.1)],
        ... ]
        >>> choose_plan(steps, 6)
        (2, 4)
    """
    options = [option for options in steps for option in options]
    harms = np.array([option.harm for option in options])
    scale = max(abs(limit), *(option.cost for option in options))
    for tries in range(TRIES):
        plan = _solve(steps, ends, harms, limit - tries * ROUNDING * scale)
        if plan is None or cost_of(steps, plan, ends) <= limit:
            return plan
    return None


def cheapest_plan(steps: Steps, ends: Collection[int] = ()) -> Plan:
    """Return the plan of least cost; see :func:`choose_plan`."""
    return _solve(steps, ends)


def harm_of(steps: Steps, plan: Plan) -> float:
    """Return the sum of the harms of a plan's options."""
    return sum(option.harm for option in _chosen(steps, plan))


def cost_of(steps: Steps, plan: Plan, ends: Collection[int] = ()) -> float:
    """Return the sum of the costs of a plan's options, of a gap that of its first."""
    total, before = 0.0, None
    for i, option in enumerate(_chosen(steps, plan)):
        if option.units or before != 0 or i - 1 in ends:
            total += option.cost
        before = option.units
    return total


def _chosen(steps: Steps, plan: Plan) -> list[Option]:
    return [
        next(option for option in options if option.units == units)
        for options, units in zip(steps, plan, strict=True)
    ]


def _solve(
    steps: Steps,
    ends: Collection[int],
    harms: np.ndarray | None = None,
    limit: float = np.inf,
) -> Plan | None:
    """Minimise the harm within a limit or, without harms, the cost.

    There is a binary variable for every option, and one for every step that tells
    whether a gap begins there, which alone bears the cost of its map.
    """
    from scipy.optimize import LinearConstraint, milp  # slow to import
    from scipy.sparse import lil_array

    owners = [i for i, options in enumerate(steps) for _ in options]
    options = [option for options in steps for option in options]
    size, depth = len(options), len(steps)
    skips = {owners[k]: k for k, option in enumerate(options) if not option.units}
    costs = np.zeros(size + depth)
    costs[:size] = [option.cost if option.units else 0 for option in options]
    for step, k in skips.items():
        costs[size + step] = options[k].cost
    one, begins = lil_array((depth, size + depth)), lil_array((depth, size + depth))
    one[owners, range(size)] = 1
    for step, k in skips.items():
        begins[step, [size + step, k]] = 1, -1
        if step - 1 in skips and step - 1 not in ends:
            begins[step, skips[step - 1]] = 1
    rules = [LinearConstraint(one.tocsr(), 1, 1), LinearConstraint(begins.tocsr(), 0)]
    if harms is not None:
        # The solver's tolerances are absolute: of numbers near 1.
        scale = max(abs(limit), costs.max())
        rules.append(LinearConstraint(costs[None] / scale, ub=limit / scale))
        costs = np.append(harms / max(harms.max(), 1e-30), np.zeros(depth))
    found = milp(
        costs / max(costs.max(), 1e-30),
        integrality=np.ones(size + depth),
        bounds=(0, 1),
        constraints=rules,
        options=dict(mip_rel_gap=1e-6),
    )
    if found.x is None:
        return None
    chosen = np.flatnonzero(found.x[:size] > 0.5)
    return tuple(options[k].units for k in chosen)
