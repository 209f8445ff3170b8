"""Find the checkpoint to resume a training from, and check that it fits."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from logging import Logger
from pathlib import Path

from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

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
