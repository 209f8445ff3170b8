"""mmengine reads checkpoints as data.

mmengine (0.10) unpickles what torch refuses, and publishes ``register_scheme`` alone,
which replaces its loaders for the whole process. If an upgrade loads in another way,
tests/test_utils/test_checkpoint_guard.py fails.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.logging import print_log
from mmengine.runner.checkpoint import CheckpointLoader, load_from_http, load_from_local

from .checkpoints import UntrustedCheckpointError, load_url, load_weights_only
from .command_line import TRUST

KEYS = (
    'config keys: load_from, init_cfg.checkpoint; of tools/test.py: the argument '
    'checkpoint'
)
SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'
# What was read ahead, by file, in every guard that is entered.
_ahead: list[dict[str, dict[str, Any]]] = []


@contextmanager
def guard_checkpoints(trust: bool = False) -> Iterator[None]:
    """Let mmengine read checkpoints as data, where it would run what is in them.

    mmengine (0.10) unpickles what torch refuses, and on resuming it runs the config
    that a checkpoint holds. Inside this context files and addresses are read by
    :func:`load_weights_only`, through mmengine's own ``register_scheme``, and without
    that config. What loads otherwise torch itself confines to weights. With ``trust``
    everything stays as mmengine has it, and a warning is logged.
    """
    if trust:
        print_log(
            f'{TRUST}: checkpoints are loaded as they are. Any code in them runs with '
            'your rights.',
            logger='current',
            level=logging.WARNING,
        )
        yield
        return
    switch = os.environ.get(SWITCH, '0')
    os.environ[SWITCH] = '1'
    _register(_guarded(load_weights_only), _guarded(load_url))
    _ahead.append({})
    try:
        yield
    finally:
        _ahead.pop()
        os.environ[SWITCH] = switch
        _register(load_from_local, load_from_http)


def read_ahead(path: str) -> None:
    """Read a checkpoint that mmengine is about to load, and then need not read again.

    Outside :func:`guard_checkpoints` it is only read.
    """
    loaded = load_weights_only(path)
    if _ahead:
        _ahead[-1][path] = loaded


def _register(local: Callable, http: Callable) -> None:
    CheckpointLoader.register_scheme('', local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), http, force=True)


def _guarded(load: Callable[[str], dict[str, Any]]) -> Callable:
    """Return a loader of mmengine; all parts move tensors to their own device."""

    def load_from_guarded(filename: str, map_location: Any = None) -> dict[str, Any]:
        try:
            ahead = _ahead[-1].pop(filename, None) if _ahead else None
            checkpoint = load(filename) if ahead is None else ahead
        except UntrustedCheckpointError as error:
            raise UntrustedCheckpointError(
                f'{error}; nothing of it was run. If you trust where it comes from, '
                f'pass {TRUST} ({KEYS})'
            ) from None
        except ValueError as error:
            raise ValueError(f'{error} ({KEYS})') from None
        if isinstance(checkpoint.get('meta'), dict):
            for key in ('cfg', 'config'):
                checkpoint['meta'].pop(key, None)
        return checkpoint

    return load_from_guarded
