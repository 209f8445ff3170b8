"""Routes, spaces, costs, results and how stitches are chosen, in pure Python."""

from .cost_table import CostTable, Setup
from .costs import (
    UNITS,
    Budget,
    Cost,
    group_by_cost,
    is_budget,
    parse_budget,
    split_cost_range,
)
from .metrics import (
    KEY_METRICS,
    key_metric,
    metric_directions,
    pareto_front,
    rank_correlation,
    short_name,
)
from .prior import prior_scores
from .results import StitchResult, StitchResults
from .routes import (
    Position,
    Segment,
    Step,
    Stitch,
    StitchingLayerSpec,
    common_prefix,
    visiting_order,
)
from .selection import (
    best_per_budget_group,
    choose,
    middle_stitches,
    pick,
    select_stitches,
)
from .sliding_window_space import SlidingWindowSpace
from .space import StitchingSpace, check_space_record, write_space_record
from .staged_space import StagedSpace
from .two_way_space import KINDS, TwoWaySpace
