"""Detection and instance segmentation, based on mmdetection's classes."""

from snnet_mm.utils import refusal, torchvision_ops

try:
    torchvision_ops.install()
    torchvision_ops.log_use()
    from .coco_metric import StitchCocoMetric
    from .eomt import EoMTHead
except ImportError as error:  # mmengine would blame PYTHONPATH
    expected = f'an environment with onedl-mmdetection, as `make test` sets up: {error}'
    raise refusal('custom_imports', __name__, expected) from error
