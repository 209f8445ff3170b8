"""Configs by their files or names in packages."""

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

from snnet_mm.runtime.checks import check, is_number, is_whole, refusal

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
    import_module(f'{PACKAGE}.register')  # whichever was imported first
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
    for part in dicts_in(cfg.get('model')):
        nested = part.get('backbone_cfg')
        if isinstance(nested, Mapping) and 'anchors' in nested:
            allowed = f'one that is not stitched, as {part.get("type")} builds its own '
            allowed += 'network around it; stitched ones stand at model.backbone'
            raise refusal('backbone.backbone_cfg.type', nested.get('type'), allowed)
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


def set_length(
    cfg: Config, iters: int | None = None, epochs: int | None = None
) -> None:
    """Set the length of a training, and scale all that is planned for its old one.

    These are the schedulers, and the warm-ups of samplers and losses. A shorter
    training is validated no more often than before.

    Args:
        cfg: Config of the training, changed in place.
        iters: New number of iterations, for a training that counts them.
        epochs: New number of epochs, for a training that counts them.
    """
    loop = cfg.get('train_cfg') or {}
    for unit, new in (('iters', iters), ('epochs', epochs)):
        if new is None:
            continue
        old = loop.get(f'max_{unit}')
        known = [f'--{key[4:]}' for key in loop if key in ('max_iters', 'max_epochs')]
        allowed = f'{" or ".join(known) or "none"}, which train_cfg counts'
        check(old, f'--{unit}', new, allowed)
        check(is_whole(new, 1), f'--{unit}', new, 'whole numbers from 1 on')
        _scale(cfg, old, new)
        loop[f'max_{unit}'] = new
        if (interval := loop.get('val_interval')) is not None:
            loop['val_interval'] = min(new, max(interval, -(-interval * new // old)))


def _scale(cfg: Config, old: int, new: int) -> None:
    """Scale schedulers and warm-ups by ``new / old``, rounding up."""

    def up(value: float) -> int:
        return -(-value * new // old)

    def acts(part: Mapping) -> bool:
        begin = part.get('begin', 0)
        # A warm-up of one step would keep its first factor for good.
        warms_up = begin == 0 and not part.get('convert_to_iter_based')
        return part.get('end', new) - begin > warms_up

    schedules = cfg.get('param_scheduler') or []
    for part in dicts_in(schedules):
        begin = part.get('begin', 0)
        if is_number(part.get('T_max')):
            part['T_max'] = max(1, up(begin + part['T_max']) - up(begin))
        for name in {'begin', 'end', 'step_size'} & part.keys():
            part[name] = up(part[name])
        for name in {'milestones', 'periods'} & part.keys():
            part[name] = [max(1, value * new // old) for value in part[name]]
    if isinstance(schedules, list):
        cfg.param_scheduler = [*filter(acts, schedules)]
    else:  # one alone, or some by optimizer
        for name, parts in schedules.items():
            if isinstance(parts, list) and 'type' not in schedules:
                schedules[name] = [*filter(acts, parts)]
    for name in ('model', 'default_hooks', 'custom_hooks'):
        for part in dicts_in(cfg.get(name)):
            for setting in {'warm_up', 'warm_up_iters'} & part.keys():
                part[setting] = up(part[setting])
