"""Tables and pictures of stitches."""

from .depth_picture import DepthExample, plot_depths
from .pareto_plot import plot_pareto
from .stitch_report import report_stitches, stitch_table

__all__ = [
    'DepthExample',
    'plot_depths',
    'plot_pareto',
    'report_stitches',
    'stitch_table',
]
