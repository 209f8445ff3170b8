"""Costs of every step of a network, by its number of hidden units."""

from collections.abc import Mapping

import numpy as np
from torch import nn

from snnet_mm.anchors import BranchView
from snnet_mm.costs import measure_latency, part_costs
from snnet_mm.costs.parts import Part, at_scale
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import (
    Cost,
    Plan,
    Position,
    SkipSpace,
    StitchTable,
    changes_of,
    write_plan,
)

# Fractions of the units at which costs are measured, from all units but one to a single
# one: a branch with all its units is not narrow and has other layers.
COUNTED_SHARES = 1, 1 / 2, 1 / 4, 1 / 8, 0
ROUNDS = 9  # of latencies
COUNTED = 'flops', 'params'
# The cost of the whole network, and costs by step and number of units.
Known = tuple[float, dict[int, dict[int, float]]]


class StepCosts:
    """Predicts the costs of any plan from those of its steps.

    Costs of a narrow branch are interpolated between some widths: exactly for FLOPs and
    parameters, which are linear in them; milliseconds are measured on this device. The
    model has an :class:`ElasticBackbone` of :func:`probe_chains` at the same scale.
    """

    precision = 'fp32'

    def __init__(
        self, model: nn.Module, input_size: tuple[int, int], scale: float = 1
    ) -> None:
        self.model, self.size, self.scale = model, input_size, scale
        backbone = find_stitched_backbone(model)
        self.space = backbone.space
        self.view: BranchView = backbone.view
        self._whole = 0 if scale == 1 else 1
        self._counted = part_costs(model, input_size)
        self._costs: dict[str, Known] = {}

    def of(self, cost: str, plan: Plan) -> float:
        """Return the ``'flops'``, ``'params'`` or ``'latency'`` of a plan."""
        total, points = self._known(cost)
        for first, end, units in changes_of(plan, self.view.widths, self.space.read):
            for step in range(first, end):
                total -= points[step][self.view.widths[step]]
            total += self.step(cost, first, units)
        return total

    @property
    def scope(self) -> str | None:
        """Scope of the costs; see :class:`StitchTable`."""
        return self._counted[0].scope

    def write(self, plan: Plan) -> str:
        """Return a chain at the scale as text; see :func:`write_plan`."""
        return self.space.write(plan, self.scale)

    def step(self, cost: str, step: int, units: int) -> float:
        """Return the cost of one step; 0 units stand for the map of a gap."""
        known = self._known(cost)[1][step]
        if units in known:
            return known[units]
        widths = sorted(n for n in known if 0 < n < self.view.widths[step])
        value = float(np.interp(units, widths, [known[n] for n in widths]))
        return value if cost == 'latency' else round(value)

    def _known(self, cost: str) -> Known:
        """Count or measure a cost, once."""
        if cost not in self._costs:
            if cost == 'latency':
                options = dict(rounds=ROUNDS, check=(), costs=self._counted[0])
                measured = measure_latency(self.model, self.size, **options)
                whole, parts = measured.by_stitch[self._whole], measured.by_part
            else:
                table, counted = self._counted
                whole = getattr(table[self._whole], cost)
                parts = {part: getattr(c, cost) for part, c in counted.items()}
            self._costs[cost] = whole, self._by_units(parts)
        return self._costs[cost]

    def _by_units(self, costs: Mapping[Part, float]) -> dict[int, dict[int, float]]:
        """Return costs of parts by step and number of units."""
        points = {
            i: {width: costs[at_scale(Position(0, i), self.scale)]}
            for i, width in enumerate(self.view.widths)
        }
        for name, spec in self.space.layers.items():
            step, units = self.space.narrow.get(name, (spec.target.block, 0))
            points[step][units] = costs[at_scale(name, self.scale)]
        return points


def table_of(costs: Mapping[float, StepCosts], space: SkipSpace) -> StitchTable:
    """Return the cost table of the network and some chains, from costs by scale."""
    found = {
        s.id: Cost(*(costs[s.scale].of(cost, space.plans[s.id]) for cost in COUNTED))
        for s in space
    }
    return StitchTable.counted(found, costs[1].size, space, costs[1].scope)


def probe_chains(view: BranchView, scale: float = 1) -> list[str]:
    """Return chains at a scale that together have every part of any plan.

    At another scale than 1, the first is the whole network.
    """
    plans = [
        tuple(max(1, min(round(share * width), width - 1)) for width in view.widths)
        for share in COUNTED_SHARES
    ]
    for turn in (0, 1):  # one gap for every step that can be skipped
        skipped = {i for i in view.skippable if i % 2 == turn}
        plans.append(
            tuple(0 if i in skipped else width for i, width in enumerate(view.widths))
        )
    narrow = [p for p in dict.fromkeys(plans) if p != view.widths]
    whole = [] if scale == 1 else [write_plan((), (), scale)]
    return whole + [write_plan(plan, view.blocks, scale) for plan in narrow]
