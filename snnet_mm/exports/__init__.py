"""Stitches as models of their own, as graphs for other runtimes, and under a budget."""

from snnet_mm.runtime import read_manifest

from .exporter import StitchExporter
from .formats import FORMATS, PRECISIONS, load_export
from .request import ExportRequest
from .single import load_single, single_stitch, single_stitch_config
