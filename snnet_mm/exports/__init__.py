"""Export of stitches as standalone models and as graphs for other runtimes."""

from .exporter import StitchExporter
from .formats import FORMATS, PRECISIONS, ExportRequest
from .single import load_single, single_stitch, single_stitch_config
