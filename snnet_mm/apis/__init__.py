"""Calls for a user's own code."""

from snnet_mm.costs import cost_table, measure_latency, measure_memory
from snnet_mm.export import BudgetController, fit_times
from snnet_mm.models import find_stitched_backbone, set_input_size, set_stitch
from snnet_mm.stitching import (
    CostTable,
    StitchResults,
    choose_pair,
    choose_precision,
    pick,
    select_stitches,
)

from .build_runner import build_runner
from .compile_blocks import compile_blocks
from .init_inferencer import (
    draw_prediction,
    init_inferencer,
    list_images,
    predict_arrays,
)
from .init_model import check_stitches, init_model, space_of
from .make_elastic import make_elastic
from .stitch_models import stitch_models
