"""Scores and costs of stitches: one pass over the data, tables and pictures."""

from .costs import cost_table
from .loops import StitchTestLoop, StitchValLoop
from .measure import LatencyCheck, measure_latency, measure_memory, measuring_setup
from .parts import preprocessed_size
from .pictures.image_grid import DepthExample, plot_depths, plot_sheet
from .pictures.pareto_plot import Baseline, plot_pareto
from .pictures.prediction_drawer import draw_sample
from .pictures.route_plot import plot_routes
from .tables import as_text, cost_report, report_stitches, stitch_table, wide_console
from .trainable import count_parameters

__all__ = [
    'Baseline',
    'DepthExample',
    'LatencyCheck',
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
]
