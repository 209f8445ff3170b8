"""Tables and pictures of stitches."""

from .pareto_plot import plot_pareto
from .prediction_drawer import PredictionDrawer
from .stitch_report import report_stitches, stitch_table

__all__ = ['PredictionDrawer', 'plot_pareto', 'report_stitches', 'stitch_table']
