"""Find the checkpoint to resume a training from; check it, and say what it sets."""

import ast
import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from logging import Logger
from pathlib import Path
from typing import Any

from mmengine.optim import OptimWrapper, OptimWrapperDict, _ParamScheduler
from mmengine.runner import Runner
from torch.optim import Optimizer

from snnet_mm.utils import UntrustedCheckpointError, check, read_ahead

# Optimizer state with the shape of its parameter. Other state, such as factored moments
# and step counts, may have any shape.
FULL_SIZE = {'exp_avg', 'exp_avg_sq', 'max_exp_avg_sq', 'momentum_buffer'}


def find_resumable(
    work_dir: str | os.PathLike, folder: str | os.PathLike, names: str, logger: Logger
) -> str | None:
    """Find the checkpoint in ``last_checkpoint``, else the newest readable one.

    ``last_checkpoint`` in ``work_dir`` may be torn or stale, as mmengine does not write
    it atomically. ``names`` is a template such as ``'iter_{}.pth'``.
    """
    note = Path(work_dir, 'last_checkpoint')
    named = note.read_text().strip() if note.is_file() else ''
    if named and Path(named).is_dir():  # DeepSpeed's, which has its own reader
        return named
    unreadable, says = [], f'names {named}.' if named else 'is missing or empty.'
    for path in _candidates(named, Path(folder), names):
        try:
            with suppress(UntrustedCheckpointError):  # The loader decides on trust.
                read_ahead(path)
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
    """Yield the named checkpoint, then all others in the folder, newest first."""
    if named:
        yield named
    pattern = re.compile(re.escape(names).replace(r'\{\}', r'(\d+)'))
    steps = {p: pattern.fullmatch(p.name) for p in folder.glob('*') if p.is_file()}
    found = [(p.stat().st_mtime_ns, int(m[1]), str(p)) for p, m in steps.items() if m]
    yield from (path for _, _, path in sorted(found, reverse=True) if path != named)


def diverged(runner: Runner, what: str) -> ValueError:
    """Return the error for a diverged training, which names the last checkpoint."""
    last = runner.message_hub.runtime_info.get('last_ckpt')
    kept = f'the last checkpoint is {last}' if last else 'there is no checkpoint yet'
    return ValueError(
        f'{what}: the training diverged; {kept} (config keys: '
        'optim_wrapper.optimizer.lr, optim_wrapper.clip_grad, param_scheduler)'
    )


def check_resumable(
    checkpoint: Mapping, name: str, optim_wrapper: OptimWrapper
) -> None:
    """Raise unless a checkpoint contains the state that resuming requires."""
    missing = {'meta', 'message_hub', 'optimizer'} - set(checkpoint)
    missing |= {'epoch', 'iter'} - set(checkpoint.get('meta', ()))
    instead = 'to start from its weights, set resume=False'
    lacking = f'a checkpoint with {", ".join(sorted(missing))}; {instead}'
    check(not missing, 'load_from', name, lacking)
    for saved, wrapper in _optimizers(checkpoint, optim_wrapper).values():
        _check_optimizer(saved, wrapper.optimizer, name, instead)


def _optimizers(
    checkpoint: Mapping, optim_wrapper: OptimWrapper | OptimWrapperDict
) -> dict[str, tuple[Mapping, OptimWrapper]]:
    """Return saved states and optimizers by config key; DeepSpeed's are left out."""
    found, key = {'': optim_wrapper}, 'optim_wrapper'
    saved = {'': checkpoint['optimizer']}
    if isinstance(optim_wrapper, OptimWrapperDict):
        found, saved = dict(optim_wrapper.items()), checkpoint['optimizer']
    return {
        f'{key}.{name}'.rstrip('.'): (saved[name], wrapper)
        for name, wrapper in found.items()
        if name in saved and hasattr(wrapper, 'optimizer')
    }


def _check_optimizer(
    saved: Mapping, optimizer: Optimizer, name: str, instead: str
) -> None:
    groups = optimizer.param_groups
    sizes = [len(group['params']) for group in saved['param_groups']]
    fits = sizes == [len(group['params']) for group in groups]
    # Other versions of torch lack some settings, other optimizers have others.
    known = {k for group in saved['param_groups'] for k in group if 'initial_' not in k}
    more = known - {'params'} - {*groups[0]}
    lacking = sorted({*optimizer.defaults} - known)
    kind = f'a checkpoint of {type(optimizer).__name__}, with {", ".join(lacking)} and '
    kind += f'without {", ".join(sorted(more))}; {instead}'
    check(not more or not lacking, 'load_from', name, kind)
    params = [p for group in groups for p in group['params']]
    for i, state in saved['state'].items():
        if fits:
            values = [state[k] for k in FULL_SIZE & set(state)]
            fits = all(v is None or v.shape == params[i].shape for v in values)
    of_others = f'one with the state of these trained parameters; {instead}'
    check(fits, 'load_from', name, of_others)


def differences(checkpoint: Mapping, runner: Runner) -> Iterator[str]:
    """Yield a line for each setting that differs between checkpoint and config.

    The checkpoint holds the optimizer and the schedule; the length of the training and
    its batches are those of the config.
    """
    for key, (saved, wrapper) in _optimizers(checkpoint, runner.optim_wrapper).items():
        groups = wrapper.optimizer.param_groups
        changes = _changed_groups(saved['param_groups'], groups)
        for name, (old, new, number) in changes.items():
            of = f' (in {number} of {len(groups)} groups)' if len(groups) > 1 else ''
            yield f'{key}.optimizer.{name}: {_kept(old, new)}{of}'
    schedulers = getattr(runner, 'param_schedulers', None) or []
    saved = checkpoint.get('param_schedulers') or []
    key = 'param_scheduler'
    if isinstance(schedulers, Mapping):
        for name in schedulers.keys() & {*saved}:
            yield from _changed_schedule(f'{key}.{name}', saved[name], schedulers[name])
    else:
        yield from _changed_schedule(key, saved, schedulers)
    seed = checkpoint['meta'].get('seed')
    own = (runner.cfg.get('randomness') or {}).get('seed')
    if own is not None and seed not in (None, own):
        yield f'randomness.seed: {_kept(seed, own)}, but for the order of the data'
    info = checkpoint['message_hub'].get('runtime_info', {})
    size = (runner.cfg.get('train_dataloader') or {}).get('batch_size')
    for key, old, new in (
        ('train_cfg.max_epochs', info.get('max_epochs'), runner.max_epochs),
        ('train_cfg.max_iters', info.get('max_iters'), runner.max_iters),
        ('train_dataloader.batch_size', _saved_batch_size(info.get('cfg')), size),
    ):
        if old is not None and old != new:
            yield f'{key}: {new} of the config applies; the checkpoint had {old}'


def _kept(old: Any, new: Any) -> str:
    return f'{old} of the checkpoint goes on, not {new} of the config'


def _changed_groups(
    saved: Sequence[Mapping], groups: Sequence[Mapping]
) -> dict[str, tuple[Any, Any, int]]:
    """Return saved and own values, and the number of groups that differ, by name."""
    changes: dict[str, tuple[Any, Any, int]] = {}
    for of_both in zip(saved, groups, strict=True):
        names = set.intersection(*map(set, of_both)) - {'params'}
        for name in sorted(n for n in names if not n.startswith('initial_')):
            # Schedulers change the value and keep the one of the config.
            old, new = (g.get(f'initial_{name}', g[name]) for g in of_both)
            if not _equal(old, new):
                first = changes.get(name, (old, new, 0))
                changes[name] = (*first[:2], first[2] + 1)
    return changes


def _changed_schedule(
    key: str, saved: Sequence[Mapping], schedulers: Sequence[_ParamScheduler]
) -> Iterator[str]:
    if len(saved) != len(schedulers):
        yield f'{key}: {len(schedulers)} of the config; the checkpoint had {len(saved)}'
    for i, (state, scheduler) in enumerate(zip(saved, schedulers, strict=False)):
        # The state also holds steps and values, which are no settings.
        settings = {
            name
            for kind in type(scheduler).__mro__
            for name in inspect.signature(kind.__init__).parameters
            if name in vars(scheduler)
        } - {'optimizer', 'last_step'}
        if other := sorted(settings - state.keys()):
            kind, lacks = type(scheduler).__name__, ', '.join(other)
            yield f'{key}.{i}: {kind} of the config; the checkpoint had none of {lacks}'
        for name in sorted(settings & state.keys()):
            old, new = state[name], getattr(scheduler, name)
            if not _equal(old, new):
                yield f'{key}.{i}.{name}: {_kept(old, new)}'


def _equal(a: Any, b: Any) -> bool:
    a, b = (list(x) if isinstance(x, tuple) else x for x in (a, b))
    return bool(a == b)


def _saved_batch_size(config: str | None) -> int | None:
    """Return the batch size in the text of a saved config, which is not executed."""
    try:
        lines = ast.parse(config or '').body
    except SyntaxError:
        return None
    for line in lines:
        named = isinstance(line, ast.Assign) and getattr(line.targets[0], 'id', '')
        for setting in getattr(getattr(line, 'value', None), 'keywords', ()):
            value = setting.value
            if named == 'train_dataloader' and setting.arg == 'batch_size':
                return value.value if isinstance(value, ast.Constant) else None
    return None
