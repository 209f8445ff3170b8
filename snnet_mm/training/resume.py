"""Find the checkpoint to resume a training from; check it, and say what it sets."""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from logging import Logger
from pathlib import Path

from mmengine.runner import Runner

from snnet_mm.utils import UntrustedCheckpointError, check, read_ahead

# Settings of which a resumed training says that they differ.
COMPARED = ('optim_wrapper.', 'param_scheduler.', 'train_cfg.', 'randomness.')
COMPARED += ('train_dataloader.batch_size',)


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


def check_resumable(checkpoint: Mapping, name: str) -> None:
    """Raise unless a checkpoint contains the state that resuming requires."""
    missing = {'meta', 'message_hub', 'optimizer'} - set(checkpoint)
    missing |= {'epoch', 'iter'} - set(checkpoint.get('meta', ()))
    lacking = f'a checkpoint with {", ".join(sorted(missing))}; to start from its '
    check(not missing, 'load_from', name, lacking + 'weights, set resume=False')


def differences(saved: str | None, config: str | None) -> list[str]:
    """Return the settings of a training that differ between two texts of configs.

    The texts are parsed, never executed.
    """
    old, new = _settings(saved), _settings(config)
    changed = (key for key in sorted(old | new) if old.get(key) != new.get(key))
    names = ((key, old.get(key, 'none'), new.get(key, 'none')) for key in changed)
    return [f'{key}={now} (was {before})' for key, before, now in names if old and new]


def _settings(text: str | None) -> dict[str, str]:
    """Return the settings of a config that belong to :data:`COMPARED`, as text."""
    found: dict[str, str] = {}

    def add(key: str, node: ast.expr) -> None:
        if isinstance(node, ast.Call):  # dict(a=1), or dict({'a.b': 1})
            children = [(k.arg, k.value) for k in node.keywords]
            children += [(None, arg) for arg in node.args]
        elif isinstance(node, ast.Dict):
            names = map(ast.unparse, node.keys)
            children = [*zip(names, node.values, strict=True)]
        elif isinstance(node, ast.List | ast.Tuple):
            children = [*enumerate(node.elts)]
        else:
            found[key] = ast.unparse(node)
            return
        for name, child in children:
            add(key if name is None else f'{key}.{name}', child)

    with suppress(SyntaxError):
        for line in ast.parse(text or '').body:
            if isinstance(line, ast.Assign):
                add(line.targets[0].id, line.value)
    return {key: value for key, value in found.items() if key.startswith(COMPARED)}
