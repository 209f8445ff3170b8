"""Parts for classes of other mm packages; the modules here import none of these."""

from collections.abc import Mapping
from importlib import import_module

from . import detector_heads, rules


def import_detection_for(cfg: Mapping) -> None:
    """Prepare mmdetection for its configs, also for those that do not import us."""
    if cfg.get('default_scope') == 'mmdet':
        import_module('snnet_mm.integrations.mmdet')
