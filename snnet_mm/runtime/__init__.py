"""Runtime of exported stitches, which requires only numpy and onnxruntime.

Neither torch nor mm packages are required. The rest of ``snnet_mm`` imports this
package, never the reverse.
"""

from .budget_controller import BudgetController
from .deadline import Deadline
from .detections import Detections, Panoptic
from .folder import Folder, predict_folder
from .manifest import read_manifest
from .painting import paint
from .runtime import StitchRuntime
