"""Pictures of results, stitching spaces and predictions."""

from .image_grid import DepthExample, plot_depths, plot_sheet
from .pareto_page import write_pareto_page
from .pareto_plot import Baseline, plot_pareto
from .prediction_drawer import PredictionDrawer, draw_sample
from .route_plot import plot_routes

__all__ = [
    'Baseline',
    'DepthExample',
    'PredictionDrawer',
    'draw_sample',
    'plot_depths',
    'plot_pareto',
    'plot_routes',
    'plot_sheet',
    'write_pareto_page',
]
