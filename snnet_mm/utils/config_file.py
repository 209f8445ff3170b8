"""Configs by their files or names in packages, and the ops that some need."""

import inspect
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from numbers import Number
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.config.utils import MODULE2PACKAGE
from mmengine.runner import Runner
from mmengine.utils import get_installed_path

from snnet_mm.runtime.checks import refusal

PACKAGE = 'snnet_mm'
# Top-level keys that runners and tools read; others are variables, or for own hooks.
READ_KEYS = {*inspect.signature(Runner.__init__).parameters}
READ_KEYS |= {'custom_imports', 'strategy', 'tta_model', 'tta_pipeline'}


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
    merge_options(cfg, options or {})
    return cfg


def merge_options(cfg: Config, options: Mapping[str, Any]) -> None:
    """Override settings of a config, as ``'a.b'`` to value.

    By then the variables of its files, such as ``data_root``, have been put into the
    keys that depend on them: to change a variable alone would change nothing, and is
    refused with the keys that hold its value.
    """
    # What a model has itself comes first.
    unread = {'data_preprocessor'} & (cfg.get('model') or {}).keys()
    names = {key.partition('.')[0] for key in options} - (READ_KEYS - unread)
    before = {name: deepcopy(cfg[name]) for name in names & cfg.keys()}
    held = {name: _held_at(cfg, name, value) for name, value in before.items()}
    try:
        cfg.merge_from_dict(dict(options))
    except Exception as error:
        fitting = f'settings of {cfg.filename} ({error})'
        raise refusal('--cfg-options', options, fitting) from error
    for name, value in before.items():
        used = re.search(rf'(?<![\w\'"/]){name}\b(?!\s*=[^=])', cfg.text)
        held_now = _held_at(cfg, name, value)
        if cfg[name] != value and (held_now or (used and not held[name])):
            keys = ', '.join(held_now) or 'those made of it'
            what = f'the keys that this variable of the file was put into: {keys}'
            raise refusal('--cfg-options', name, what)


def _held_at(cfg: Config, name: str, value: Any) -> list[str]:
    """Keys that hold the value of a variable, or a path that begins with it."""
    # Numbers are equal by chance.
    telling = value and not isinstance(value, (bool, Number))
    is_path = isinstance(value, str) and '/' in value

    def search(node: Any, path: str) -> Iterator[str]:
        equal = node == value and (telling or path.rpartition('.')[2] == name)
        if equal or (is_path and isinstance(node, str) and node.startswith(value)):
            yield path
        children = enumerate(node) if isinstance(node, (list, tuple)) else ()
        children = node.items() if isinstance(node, Mapping) else children
        for key, child in children:
            yield from search(child, f'{path}.{key}')

    others = [key for key in cfg if key != name and key in READ_KEYS]
    return [path for key in others for path in search(cfg[key], key)]


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
