"""Stitches as models of their own, as graphs for other runtimes, and under a budget."""

from snnet_mm.runtime import BudgetController, fit_times

from .exporter import FORMATS, StitchExporter
from .onnx_files import open_onnx, run_onnx
from .single import load_single, single_stitch, single_stitch_config
