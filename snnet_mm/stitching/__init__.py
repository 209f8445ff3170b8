"""WHAT can be stitched: routes, spaces, costs and Pareto fronts. Pure Python."""

from .cost_groups import group_by_cost
from .cost_table import Cost, CostTable
from .pareto import pareto_front
from .results import StitchResult, StitchResults
from .routes import Position, Segment, Stitch, StitchingLayerSpec
from .selection import select_stitches
from .spaces import StitchingSpace, TwoWaySpace

__all__ = [
    'Cost',
    'CostTable',
    'Position',
    'Segment',
    'Stitch',
    'StitchResult',
    'StitchResults',
    'StitchingLayerSpec',
    'StitchingSpace',
    'TwoWaySpace',
    'group_by_cost',
    'pareto_front',
    'select_stitches',
]
