"""Export of stitches as standalone models and as graphs for other runtimes."""

from .exporter import StitchExporter
from .formats import FORMATS, PRECISIONS, ExportRequest
from .single import single_stitch, single_stitch_config
