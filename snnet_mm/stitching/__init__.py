"""Routes, spaces, costs, results and the selection of stitches, in pure Python."""

from snnet_mm.runtime.budgets import (
    UNITS,
    Budget,
    best_within,
    is_budget,
    pareto_front,
    parse_budget,
)

from .cost_groups import default_step, group_by_cost, split_cost_range
from .metrics import (
    HIGHER,
    key_metric,
    know_metrics,
    metric_directions,
)
from .picking import Choice, pick_stitch, prior_scores
from .plans import Plan, read_plan, write_plan
from .routes import (
    Position,
    Segment,
    Step,
    Stitch,
    StitchingLayerSpec,
    visiting_order,
)
from .selection import Selection
from .skip_space import SkipSpace, changes_of
from .sliding_window_space import SlidingWindowSpace
from .space import (
    StitchingSpace,
    check_space_record,
    middle_stitches,
    write_space_record,
)
from .staged_space import StagedSpace
from .table import Cost, Key, Setup, StitchRow, StitchTable, cost_column
from .two_way_space import KINDS, TwoWaySpace
