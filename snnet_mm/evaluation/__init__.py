"""Scores and costs of stitches: one pass over the data, tables and pictures."""

from .loops import StitchTestLoop, StitchValLoop
from .per_stitch_bn import recalibrate_bn
from .pictures.figures import as_picture, plot_images
from .pictures.pareto_plot import Baseline, plot_pareto
from .tables import as_text, report_stitches, stitch_table, wide_console
from .whole_model import evaluate_whole_model
