"""Exported stitches at run time, with numpy and onnxruntime or OpenVINO alone.

Neither torch nor an mm package need be there; snnet_mm imports this package.
"""

from .budget_controller import BudgetController
from .detection import Detections, Panoptic
from .folder import Deadline, predict_folder
from .manifest import read_manifest
from .painting import paint
from .runtime import StitchRuntime
