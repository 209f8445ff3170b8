"""WHAT can be stitched: routes, spaces, costs and Pareto fronts. Pure Python."""

from .cost_groups import group_by_cost, split_cost_range
from .cost_table import Cost, CostTable
from .pareto import pareto_front
from .prefix_tree import common_prefix, count_blocks, visiting_order
from .results import StitchResult, StitchResults
from .routes import Position, Segment, Step, Stitch, StitchingLayerSpec
from .screening import best_per_budget_group
from .selection import select_stitches
from .sliding_window_space import SlidingWindowSpace
from .space import StitchingSpace
from .two_way_space import KINDS, TwoWaySpace

__all__ = [
    'KINDS',
    'Cost',
    'CostTable',
    'Position',
    'Segment',
    'SlidingWindowSpace',
    'Step',
    'Stitch',
    'StitchResult',
    'StitchResults',
    'StitchingLayerSpec',
    'StitchingSpace',
    'TwoWaySpace',
    'best_per_budget_group',
    'common_prefix',
    'count_blocks',
    'group_by_cost',
    'pareto_front',
    'select_stitches',
    'split_cost_range',
    'visiting_order',
]
