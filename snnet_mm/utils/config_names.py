"""Configs by the names that they have wherever the package is installed."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE

PACKAGE = 'snnet_mm'


def config_path(name: str | os.PathLike) -> Path:
    """The file of a config.

    Args:
        name: The file, or its name in an installed package, such as
            ``'snnet_mm::camvid/setr-naive_vit-fast_1xb8-1500_camvid-240x176.py'``.

    Raises:
        ValueError: If there is no such package.
    """
    if '::' not in str(name):
        return Path(name).expanduser()
    package, _, relative = str(name).partition('::')
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):  # no such parent, or no name at all
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(
            f'config {name}: there is no package {package} (argument: config)'
        )
    return Path(spec.origin).parent / '.mim' / 'configs' / relative


def register_config_names() -> None:
    """Let ``_base_ = ['snnet_mm::...']`` and mmengine's ``get_config`` find configs.

    mmengine knows OpenMMLab's packages only, and takes a package for a scope of its
    registries. Our parts are in the root registries: a config keeps its own scope.
    """
    MODULE2PACKAGE[PACKAGE] = PACKAGE
    if not hasattr(Config, '_path_and_any_scope'):
        Config._path_and_any_scope = staticmethod(Config._get_cfg_path)
        Config._get_cfg_path = staticmethod(_path_and_scope)


def _path_and_scope(cfg_path: str, filename: str) -> tuple[str, str | None]:
    path, scope = Config._path_and_any_scope(cfg_path, filename)
    return path, None if scope == PACKAGE else scope
