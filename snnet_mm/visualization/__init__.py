"""Tables and pictures of stitches."""

from .class_frequencies import plot_class_frequencies
from .contact_sheet import plot_sheet
from .cost_report import as_text, cost_report, wide_console, write_cost_csv
from .depth_picture import DepthExample, plot_depths
from .pareto_page import write_pareto_page
from .pareto_plot import Baseline, plot_pareto
from .prediction_drawer import PredictionDrawer, draw_sample
from .route_plot import plot_routes
from .stitch_report import report_stitches, stitch_table

__all__ = [
    'Baseline',
    'DepthExample',
    'PredictionDrawer',
    'as_text',
    'draw_sample',
    'cost_report',
    'plot_class_frequencies',
    'plot_depths',
    'plot_pareto',
    'plot_routes',
    'plot_sheet',
    'report_stitches',
    'stitch_table',
    'wide_console',
    'write_cost_csv',
    'write_pareto_page',
]
