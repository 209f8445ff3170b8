"""Checkpoints that a training goes on from: which one, and whether it fits."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from logging import Logger
from pathlib import Path
from typing import NoReturn

from mmengine.logging import print_log
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone, unwrapped
from snnet_mm.models.backbones.stitched_backbone import (
    SPACE_RECORD,
    check_space_of_weights,
)
from snnet_mm.utils import UntrustedCheckpointError, check, load_weights_only

KEYS = 'config key: load_from; of tools/test.py: the argument checkpoint'
# Weights that change the outputs of the others, by the setting that makes room for
# them; other rooms add theirs.
ADDED = {r'(^|\.)blocks\..*\.lora_': 'model.backbone.anchors.lora'}
# State of optimizers that is as large as its parameter. Other state is of any shape:
# factored moments, steps.
FULL_SIZE = {'exp_avg', 'exp_avg_sq', 'max_exp_avg_sq', 'momentum_buffer'}


def find_resumable(
    work_dir: str | os.PathLike, folder: str | os.PathLike, names: str, logger: Logger
) -> str | None:
    """Find the checkpoint that ``last_checkpoint`` names, or the newest readable one.

    That note, in ``work_dir``, may be torn or stale, as it is not written atomically.
    Checkpoints have ``names`` such as ``'iter_{}.pth'``.
    """
    note = Path(work_dir, 'last_checkpoint')
    named = note.read_text().strip() if note.is_file() else ''
    if named and Path(named).is_dir():  # DeepSpeed's, which has a reader of its own
        return named
    unreadable, says = [], f'names {named}.' if named else 'is missing or empty.'
    for path in _candidates(named, Path(folder), names):
        try:
            with suppress(UntrustedCheckpointError):  # Trust is up to the loader.
                load_weights_only(path)
        except ValueError as error:
            logger.warning(f'Not resumed from: {error}')
            unreadable.append(str(error))
            continue
        if path == named:
            logger.info(f'Resuming from {path}, as last_checkpoint says.')
        else:
            newest = f'Resuming from {path}, the newest readable checkpoint'
            logger.warning(f'{newest}: {note} {says}')
        return path
    if named:
        raise ValueError(
            f'{note} names {named}, but no checkpoint can be read: '
            f'{"; ".join(unreadable)}. Put a readable one there, name one (config key: '
            'load_from), or delete last_checkpoint to start from scratch'
        )
    logger.warning(
        f'There is no readable checkpoint in {folder}: starting from scratch.'
    )
    return None


def _candidates(named: str, folder: Path, names: str) -> Iterator[str]:
    """The named checkpoint, then all others that are there, newest first."""
    if named:
        yield named
    pattern = re.compile(re.escape(names).replace(r'\{\}', r'(\d+)'))
    steps = {p: pattern.fullmatch(p.name) for p in folder.glob('*') if p.is_file()}
    found = [(p.stat().st_mtime_ns, int(m[1]), str(p)) for p, m in steps.items() if m]
    yield from (path for _, _, path in sorted(found, reverse=True) if path != named)


def check_weights_fit(
    model: nn.Module,
    checkpoint: Mapping,
    name: str,
    strict: bool,
    resumed: bool = False,
) -> None:
    """Check that the weights of a checkpoint, or state dict, are those of a model.

    mmengine loads what has a place, and only logs the rest. If ``strict``, all
    parameters must be there, in their shapes, and nothing that adds to them; else one
    is enough. If ``resumed``, the stitches must be all of the checkpoint's.
    """
    model = unwrapped(model)
    weights = checkpoint.get('state_dict', checkpoint)
    weights = {str(k).removeprefix('module.'): v for k, v in weights.items()}
    _check_space(model, weights, name, resumed)
    shapes, wanted = _shapes(weights), _shapes(model.state_dict())
    known = shapes.keys() & wanted.keys()
    if not known:
        has = f'such as {list(weights)[:3]}, is one of {list(wanted)[:3]}, ...'
        _refuse(name, f'is of another model: none of its keys, {has}')
    if key := non_finite({key: weights[key] for key in known}):
        why = 'the training diverged, or the file is damaged'
        _refuse(name, f'holds {key} that is not finite: {why}')
    if strict:
        _check_all_there(model, shapes, wanted, name)


def non_finite(weights: Mapping[str, Tensor]) -> str | None:
    """Return the name of a weight with an infinite value or a NaN, if there is one."""
    for key, value in weights.items():
        floats = isinstance(value, Tensor) and value.is_floating_point()
        if floats and not value.isfinite().all():
            return key
    return None


def diverged(runner: Runner, what: str) -> ValueError:
    """Return the error that stops a training, which names the last checkpoint."""
    last = runner.message_hub.runtime_info.get('last_ckpt')
    kept = f'the last checkpoint is {last}' if last else 'there is no checkpoint yet'
    return ValueError(
        f'{what}: the training diverged; {kept} (config keys: '
        'optim_wrapper.optimizer.lr, optim_wrapper.clip_grad, param_scheduler)'
    )


def _refuse(name: str, what: str, keys: str = KEYS) -> NoReturn:
    raise ValueError(f'checkpoint {name} {what} ({keys})')


def _check_all_there(
    model: nn.Module, shapes: Mapping, wanted: Mapping, name: str
) -> None:
    for key, shape in shapes.items():
        if shape != wanted.get(key, shape):
            has = f'{key} has shape {shape}, the model has {wanted[key]}'
            _refuse(name, f'is of another geometry: {has}')
    for pattern, setting in ADDED.items():
        added = [k for k in shapes if re.search(pattern, k)]
        if added and not any(re.search(pattern, k) for k in wanted):
            why = 'that the model has no place for; without them it is not what was'
            keys = f'config key: {setting}; {KEYS}'
            _refuse(name, f'holds {added[0]} and others {why} trained', keys)
    # Without the buffer, stitching layers would be fitted anew.
    needed = [k for k in wanted if k.endswith('stitching_initialized')]
    needed += [k for k, _ in model.named_parameters()]
    missing = [k for k in needed if k not in shapes]
    if missing:
        what = f'lacks {len(missing)} parameters of the model, such as'
        _refuse(name, f'{what} {missing[:3]}')


def _check_space(model: nn.Module, weights: Mapping, name: str, exact: bool) -> None:
    for path, module in model.named_modules():
        if not isinstance(module, StitchedBackbone):
            continue
        try:
            prefix = f'{path}.' if path else ''
            known = check_space_of_weights(weights, module.space, prefix, exact)
        except ValueError as error:
            _refuse(name, f'does not fit: {error}')
        if not known:
            words = 'does not say which stitching space it is of; older ones do not'
            words += ': its ids are taken for those of the model.'
            print_log(f'checkpoint {name} {words}', 'current')


def _shapes(weights: Mapping) -> dict[str, tuple[int, ...]]:
    return {
        key: tuple(value.shape)
        for key, value in weights.items()
        if isinstance(value, Tensor) and not key.endswith(SPACE_RECORD)
    }


def check_resumable(
    checkpoint: Mapping, name: str, optim_wrapper: OptimWrapper
) -> None:
    """Check that a checkpoint holds what a training goes on from."""
    missing = {'meta', 'message_hub', 'optimizer'} - set(checkpoint)
    missing |= {'epoch', 'iter'} - set(checkpoint.get('meta', ()))
    instead = 'to start from its weights, set resume=False'
    lacking = f'a checkpoint with {", ".join(sorted(missing))}; {instead}'
    check(not missing, 'load_from', name, lacking)
    optimizer = getattr(optim_wrapper, 'optimizer', None)
    if optimizer is None:
        return
    saved, groups = checkpoint['optimizer'], optimizer.param_groups
    sizes = [len(group['params']) for group in saved['param_groups']]
    fits = sizes == [len(group['params']) for group in groups]
    params = [p for group in groups for p in group['params']]
    for i, state in saved['state'].items():
        if fits:
            values = [state[k] for k in FULL_SIZE & set(state)]
            fits = all(v is None or v.shape == params[i].shape for v in values)
    of_others = f'one with the state of these trained parameters; {instead}'
    check(fits, 'load_from', name, of_others)
