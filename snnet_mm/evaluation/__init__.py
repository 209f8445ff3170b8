"""Scores and costs of stitches: one pass over the data, tables and pictures."""

from .broken_images import BrokenImagesHook
from .costs import cost_table, count_parameters, whole_model_cost
from .extensions import WHOLE_DATA_METRICS, rule_for
from .loops import StitchTestLoop, StitchValLoop
from .measure import LatencyCheck, measure_latency, measure_memory, measuring_setup
from .one_pass import prepare, random_batches, spread
from .parts import preprocessed_size, size_of_images
from .pictures.figures import add_legend, plot_images
from .pictures.pareto_plot import Baseline, plot_pareto
from .pictures.prediction_drawer import draw_sample
from .pictures.route_plot import plot_routes
from .sizes import check_sizes, size_name
from .stitch_statistics import StitchStatisticsHook
from .tables import as_text, cost_report, report_stitches, stitch_table, wide_console
from .whole_model import evaluate_whole_model
