"""What stitches score and cost: one pass over the data, tables and pictures."""

from .cost_report import as_text, cost_report, wide_console, write_cost_csv
from .costs import cost_table
from .loops import StitchTestLoop, StitchValLoop
from .measure import (
    Latencies,
    LatencyCheck,
    measure_latency,
    measure_memory,
    measuring_setup,
)
from .parts import preprocessed_size
from .pictures import (
    Baseline,
    DepthExample,
    PredictionDrawer,
    draw_sample,
    plot_depths,
    plot_pareto,
    plot_routes,
    plot_sheet,
    write_pareto_page,
)
from .stitch_report import report_stitches, stitch_table
from .trainable import ParameterCount, count_parameters

__all__ = [
    'Baseline',
    'DepthExample',
    'Latencies',
    'LatencyCheck',
    'ParameterCount',
    'PredictionDrawer',
    'StitchTestLoop',
    'StitchValLoop',
    'as_text',
    'cost_report',
    'cost_table',
    'count_parameters',
    'draw_sample',
    'measure_latency',
    'measure_memory',
    'measuring_setup',
    'plot_depths',
    'plot_pareto',
    'plot_routes',
    'plot_sheet',
    'preprocessed_size',
    'report_stitches',
    'stitch_table',
    'wide_console',
    'write_cost_csv',
    'write_pareto_page',
]
