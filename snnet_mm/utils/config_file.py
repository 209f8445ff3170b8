"""Configs by their files or names in packages, and the ops that some need."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.utils import get_installed_path

from .checks import refusal

PACKAGE = 'snnet_mm'


def load_config(
    name: str | os.PathLike, options: Mapping[str, Any] | None = None
) -> Config:
    """Read a config and override settings of it, as ``'a.b'`` to value.

    Its name is a file, or of an installed package, such as
    ``'snnet_mm::camvid/setr-naive_vit-fast_1xb8-1500_camvid-240x176.py'``. The files of
    ``_base_`` may be named in both ways, too.
    """
    path = _path_of(str(name))
    try:
        with _packages_by_import_names():
            cfg = Config.fromfile(path)
    except ImportError:
        raise  # of custom_imports; the message says what is missing
    except Exception as error:
        raise ValueError(
            f'config {path} cannot be read: {type(error).__name__}: {error} (argument: '
            'config)'
        ) from error
    for node in dicts_in(cfg._cfg_dict):
        # mmengine gives one to parts of a base out of a package; ours need none.
        if node.get('_scope_') == PACKAGE:
            del node['_scope_']
    try:
        cfg.merge_from_dict(dict(options or {}))
    except Exception as error:
        fitting = f'settings of {path} ({error})'
        raise refusal('--cfg-options', options, fitting) from error
    return cfg


def _path_of(name: str) -> Path:
    package, separator, relative = name.rpartition('::')
    if not separator:
        return Path(name).expanduser()
    try:
        return Path(get_installed_path(package), '.mim', 'configs', relative)
    except Exception:
        raise refusal('config', name, 'names in installed packages') from None


@contextmanager
def _packages_by_import_names() -> Iterator[None]:
    """Let ``_base_ = ['package::name']`` find packages by their import names.

    mmengine 0.10 has a table from import names to distributions, without this package,
    in which ``mmseg`` belongs to ``mmsegmentation``, while the maintained distribution
    is ``onedl-mmsegmentation``. Its lookup takes import names as well. The table is
    changed while a config is read, and only then. Should mmengine drop the table,
    tests/test_packaging.py fails: relative bases work in any case.
    """
    before = dict(MODULE2PACKAGE)
    MODULE2PACKAGE.update({name: name for name in (*before, PACKAGE)})
    try:
        yield
    finally:
        MODULE2PACKAGE.clear()
        MODULE2PACKAGE.update(before)


def dicts_in(node: Any) -> Iterator[dict]:
    """Every dict in a config, however deep."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list | tuple):
        for child in node:
            yield from dicts_in(child)


def check_ops_for(cfg: Mapping) -> None:
    """See :func:`check_ops`, if a config is one of mmdetection's."""
    if cfg.get('default_scope') == 'mmdet':
        check_ops()


def check_ops() -> None:
    """Refuse an mmcv without the compiled operations that mmdetection needs."""
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
