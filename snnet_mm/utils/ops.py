"""mmcv's compiled operations, which mmdetection needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module


def check_ops_for(cfg: Mapping) -> None:
    """See :func:`check_ops`, if a config is one of mmdetection's."""
    if cfg.get('default_scope') == 'mmdet':
        check_ops()


def check_ops() -> None:
    """Refuse an mmcv that was built without its compiled operations."""
    try:
        import_module('mmcv._ext')
        import_module('mmdet')
    except ImportError as error:
        raise ValueError(
            f"detection needs mmdetection and mmcv's compiled ops, and this "
            f'environment lacks them ({error}). `make test` builds such an '
            'environment, once; by hand: pip wheel --no-build-isolation --no-deps '
            '--no-cache-dir --no-binary onedl-mmcv onedl-mmcv, then pip install '
            '--force-reinstall --no-deps onedl_mmcv-*.whl, and onedl-mmdetection'
        ) from error
