"""Bundles on Ray: an HTTP service that holds deadlines, and folders of images.

It needs the extra ``ray``, neither torch nor mm.
"""

from .cluster import start_ray
from .folder import predict_folder_on_ray
from .service import build_service, check_settings
