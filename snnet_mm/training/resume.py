"""Find the checkpoint to resume a training from, and check it."""

import os
import re
from collections.abc import Mapping
from logging import Logger
from pathlib import Path

from mmengine.runner import Runner

from snnet_mm.utils import check
from snnet_mm.utils.checkpoints import is_whole_archive


def find_resumable(
    work_dir: str | os.PathLike, folder: str | os.PathLike, names: str, logger: Logger
) -> str | None:
    """Find the checkpoint in ``last_checkpoint``, else the newest readable one.

    ``last_checkpoint`` in ``work_dir`` may be torn or stale, as mmengine does not write
    it atomically. ``names`` is a template such as ``'iter_{}.pth'``.

    Raises:
        ValueError: If ``last_checkpoint`` names one, and none can be read.
    """
    note = Path(work_dir, 'last_checkpoint')
    named = note.read_text().strip() if note.is_file() else ''
    pattern = re.compile(re.escape(names).replace(r'\{\}', r'(\d+)'))
    steps = {p: pattern.fullmatch(p.name) for p in Path(folder).glob('*')}
    found = [(p.stat().st_mtime_ns, int(m[1]), str(p)) for p, m in steps.items() if m]
    newest_first = [path for _, _, path in sorted(found, reverse=True)]
    if named and Path(named).is_dir():  # DeepSpeed's, which has its own reader
        return named
    paths = [*dict.fromkeys([named, *newest_first] if named else newest_first)]
    for path in paths:
        if is_whole_archive(path):
            logger.info(f'Resuming from {path}.')
            return path
        logger.warning(f'Not resumed from {path}: it is missing or damaged.')
    if named:
        raise ValueError(
            f'{note} names {named}, but none of {", ".join(paths)} can be read. Put a '
            'readable one there, name one (config key: load_from), or delete '
            'last_checkpoint to start from scratch'
        )
    logger.warning(
        f'There is no readable checkpoint in {folder}: starting from scratch.'
    )
    return None


def diverged(runner: Runner, what: str) -> ValueError:
    """Return the error for a diverged training, which names the last checkpoint."""
    last = runner.message_hub.runtime_info.get('last_ckpt')
    kept = f'the last checkpoint is {last}' if last else 'there is no checkpoint yet'
    return ValueError(
        f'{what}: the training diverged; {kept} (config keys: '
        'optim_wrapper.optimizer.lr, optim_wrapper.clip_grad, param_scheduler)'
    )


def check_resumable(checkpoint: Mapping, name: str) -> None:
    """Raise unless a checkpoint contains the state that resuming requires."""
    missing = {'meta', 'message_hub', 'optimizer'} - set(checkpoint)
    missing |= {'epoch', 'iter'} - set(checkpoint.get('meta', ()))
    lacking = f'a checkpoint with {", ".join(sorted(missing))}; to start from its '
    check(not missing, 'load_from', name, lacking + 'weights, set resume=False')
