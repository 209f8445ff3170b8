"""Checkpoints are data, unless the user trusts them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.logging import print_log
from mmengine.runner.checkpoint import (
    CheckpointLoader,
    load_from_http,
    load_from_local,
)

from .checkpoint import UntrustedCheckpointError, load_url, load_weights_only

FLAG = '--trust-checkpoint'
KEYS = (
    'config keys: load_from, init_cfg.checkpoint; of tools/test.py: the argument '
    'checkpoint'
)
SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'


@contextmanager
def guard_checkpoints(trust: bool = False) -> Iterator[None]:
    """Let mmengine read checkpoints as data, where it would run what is in them.

    mmengine (0.10) unpickles what torch refuses, and on resuming it runs the config
    that a checkpoint holds. Inside this context files and addresses are read by
    :func:`load_weights_only`, through mmengine's own ``register_scheme``, and without
    that config. What loads otherwise torch itself confines to weights. Should mmengine
    load in another way one day, tests/test_utils/test_guarded_loading.py fails.

    Args:
        trust: Leave everything as mmengine has it, and say so.
    """
    if trust:
        print_log(
            f'{FLAG}: checkpoints are loaded as they are. Any code in them runs with '
            'your rights.',
            logger='current',
            level=logging.WARNING,
        )
        yield
        return
    switch = os.environ.get(SWITCH, '0')
    os.environ[SWITCH] = '1'
    _register(_guarded(load_weights_only), _guarded(load_url))
    try:
        yield
    finally:
        os.environ[SWITCH] = switch
        _register(load_from_local, load_from_http)


def _register(local: Callable, http: Callable) -> None:
    CheckpointLoader.register_scheme('', local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), http, force=True)


def _guarded(load: Callable[[str], dict[str, Any]]) -> Callable:
    """Return a loader of mmengine; all parts move tensors to their own device."""

    def load_from_guarded(filename: str, map_location: Any = None) -> dict[str, Any]:
        try:
            checkpoint = load(filename)
        except UntrustedCheckpointError as error:
            raise UntrustedCheckpointError(
                f'{error}; nothing of it was run. If you trust where it comes from, '
                f'pass {FLAG} ({KEYS})'
            ) from None
        except ValueError as error:
            raise ValueError(f'{error} ({KEYS})') from None
        if isinstance(checkpoint.get('meta'), dict):
            for key in ('cfg', 'config'):
                checkpoint['meta'].pop(key, None)
        return checkpoint

    return load_from_guarded
