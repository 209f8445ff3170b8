"""Bundles on Ray: a deadline-aware HTTP service, and prediction of image folders.

It requires the extra ``ray``, but neither torch nor mm packages.
"""

from .cluster import start_ray
from .folder import predict_folder_on_ray
from .service import build_service, check_settings
