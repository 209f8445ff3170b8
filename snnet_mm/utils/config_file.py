"""Reading a config, and refusing one whose outline is wrong before it is built."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from mmengine.config import Config

from .config_names import config_path

DATA = ('train_dataloader', 'val_dataloader', 'test_dataloader')
# What mmengine's runner reads, and what each must be if it is there.
SECTIONS: dict[str, tuple[type, ...]] = dict(
    model=(dict,),
    **dict.fromkeys(DATA, (dict,)),
    train_cfg=(dict,),
    val_cfg=(dict,),
    test_cfg=(dict,),
    optim_wrapper=(dict,),
    val_evaluator=(dict, list),
    test_evaluator=(dict, list),
    param_scheduler=(dict, list),
    default_hooks=(dict,),
    custom_hooks=(list,),
    randomness=(dict,),
    env_cfg=(dict,),
    visualizer=(dict,),
    log_processor=(dict,),
    work_dir=(str,),
    load_from=(str,),
    resume=(bool,),
    default_scope=(str,),
)
# Entries of sections that must be dicts, too.
ENTRIES = (
    ('model', 'data_preprocessor'),
    ('model', 'backbone'),
    *((key, part) for key in DATA for part in ('dataset', 'sampler')),
)
# What else the runner, the tools and mmengine's wrappers read.
OTHERS = (
    'auto_scale_lr',
    'custom_imports',
    'data_preprocessor',
    'experiment_name',
    'find_unused_parameters',
    'log_level',
    'model_wrapper_cfg',
    'runner_type',
    'tta_model',
    'tta_pipeline',
)
LIKENESS = 0.88


def load_config(
    name: str | os.PathLike, options: Mapping[str, Any] | None = None
) -> Config:
    """Read a config file and override settings of it.

    Args:
        name: The file, or its name in a package; see :func:`config_path`.
        options: Settings to override, as ``'a.b'`` to value.

    Raises:
        ValueError: If the file or one that it inherits from is missing, damaged or
            inherits itself, the options do not fit it, or its outline is wrong; see
            :func:`check_outline`.
    """
    path = config_path(name)
    _check_bases(path)
    try:
        cfg = Config.fromfile(path)
    except ImportError:
        raise  # custom_imports: what is missing is in the message
    except Exception as error:
        raise ValueError(
            f'config {path} cannot be read: {type(error).__name__}: {error}'
        ) from error
    if options is not None:
        _check_options(options, cfg)
        try:
            cfg.merge_from_dict(options)
        except Exception as error:
            raise ValueError(
                f'{dict(options)} cannot be merged into {path}: {error} (option: '
                '--cfg-options)'
            ) from error
    check_outline(cfg)
    return cfg


def _check_options(options: Mapping[str, Any], cfg: Config) -> None:
    """Refuse to override what neither the config has nor anything reads."""
    allowed = [*cfg, *SECTIONS, *OTHERS]
    for option in options:
        name = option.partition('.')[0]
        if name not in allowed:
            meant = get_close_matches(name, allowed, n=1)
            raise ValueError(
                f'{option}: the config has no {name}, and nothing reads one'
                + (f'; is {meant[0]} meant?' if meant else '')
                + ' (option: --cfg-options)'
            )


def check_outline(cfg: Config) -> None:
    """Refuse a config in which something of another form stands for a section.

    Raises:
        ValueError: If there is no model, a section, hook or type is of the wrong form,
            or the name of a section is misspelt, which mmengine would pass over.
    """
    for name in cfg:
        if name in SECTIONS:
            continue
        meant = get_close_matches(name, SECTIONS, n=1, cutoff=LIKENESS)
        if meant:
            raise ValueError(
                f'{name} is no setting that anything reads; is {meant[0]} meant? '
                f'(config key: {name})'
            )
    if cfg.get('model') is None:
        raise ValueError('the config has no model (config key: model)')
    for name, allowed in SECTIONS.items():
        _check_form(cfg.get(name), allowed, name)
    for section, entry in ENTRIES:
        _check_form((cfg.get(section) or {}).get(entry), (dict,), f'{section}.{entry}')
    for key in DATA:
        if cfg.get(key) is not None and cfg[key].get('dataset') is None:
            raise ValueError(f'{key} has no dataset (config key: {key}.dataset)')
    # A wrapper's model has its backbone further inside.
    if cfg.model.get('backbone', {}) is None:
        raise ValueError('the model has no backbone (config key: model.backbone)')
    hooks = cfg.get('default_hooks') or {}
    entries = {f'default_hooks.{k}': hook for k, hook in hooks.items()}
    custom = enumerate(cfg.get('custom_hooks') or ())
    entries |= {f'custom_hooks.{i}': {} if h is None else h for i, h in custom}
    for key, hook in entries.items():
        _check_form(hook, (dict,), key)
        if hook is not None and 'type' not in hook:
            raise ValueError(f'{hook} is no hook: it has no type (config key: {key})')
    for name in SECTIONS:
        for key, part in mappings_in(cfg.get(name), name):
            kind = part.get('type', name)
            if not (kind if isinstance(kind, str) else callable(kind)):
                raise ValueError(
                    f'{key}.type={kind!r}; allowed is the name of a class (config key: '
                    f'{key}.type)'
                )


def _check_form(value: object, allowed: tuple[type, ...], key: str) -> None:
    # The runner takes built parts as well, which no file can hold.
    plain = isinstance(value, dict | list | tuple | str | int | float)
    forms = (*allowed, tuple) if list in allowed else allowed
    if plain and not isinstance(value, forms):
        names = ' or a '.join(form.__name__ for form in allowed)
        raise ValueError(f'{key}={value!r}; wanted is a {names} (config key: {key})')


def mappings_in(node: object, key: str) -> Iterator[tuple[str, Mapping]]:
    """Every mapping in a part of a config, itself included, after its config key."""
    if isinstance(node, Mapping):
        yield key, node
        children = node.items()
    elif isinstance(node, list | tuple):
        children = enumerate(node)
    else:
        return
    for name, child in children:
        yield from mappings_in(child, f'{key}.{name}')


def _check_bases(path: Path, heirs: tuple[Path, ...] = ()) -> None:
    """Walk through the files that a config inherits from.

    mmengine runs into the recursion limit, or does not say which file is meant.
    """
    needed_by = f', from which {heirs[-1]} inherits,' if heirs else ''
    key = 'config key: _base_' if heirs else 'argument: config'
    if not path.is_file():
        names = [p.name for p in path.parent.glob('*.py')]
        like = get_close_matches(path.name, names, n=1)
        hint = f'; there is {like[0]}' if like else ''
        raise ValueError(f'config {path}{needed_by} does not exist{hint} ({key})')
    path = path.resolve()
    if path in heirs:
        chain = ' -> '.join(map(str, (*heirs[heirs.index(path) :], path)))
        raise ValueError(f'config {path} inherits itself: {chain} ({key})')
    try:
        names = Config._get_base_files(str(path))
    except Exception as error:
        raise ValueError(
            f'config {path}{needed_by} cannot be read: {type(error).__name__}: '
            f'{error} ({key})'
        ) from error
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                f'_base_ of config {path} names {name!r}; allowed are names of files '
                '(config key: _base_)'
            )
        _check_bases(path.parent / config_path(name), (*heirs, path))
