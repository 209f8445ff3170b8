"""Taking stitches away: as mm models of their own, and as graphs for other runtimes."""

from .exporter import FORMATS, StitchExporter
from .manifest import Manifest
from .onnx_files import open_onnx, run_onnx
from .single import load_single, single_stitch, single_stitch_config

__all__ = [
    'FORMATS',
    'Manifest',
    'StitchExporter',
    'load_single',
    'open_onnx',
    'run_onnx',
    'single_stitch',
    'single_stitch_config',
]
