"""Make mmengine load checkpoints as data.

mmengine (0.10) unpickles files that torch refuses. Its only public hook is
``register_scheme``, which replaces its loaders for the whole process. If an upgrade
loads differently, tests/test_utils/test_checkpoint_guard.py fails.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mmengine.logging import print_log
from mmengine.runner.checkpoint import CheckpointLoader, load_from_http, load_from_local

from .checkpoints import (
    UntrustedCheckpointError,
    load_url,
    load_weights_only,
    trusting,
)
from .command_line import TRUST

KEYS = (
    'config keys: load_from, init_cfg.checkpoint; of tools/test.py: the argument '
    'checkpoint'
)
TO_TRUST = f'nothing of it was run. If you trust where it comes from, pass {TRUST}'
# torch raises an error if both are set.
SWITCH = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'
OPPOSITE = 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'


# Guards that are active: inner ones leave mmengine's loaders to the outermost.
_active: list[bool] = []


@contextmanager
def guard_checkpoints(trust: bool = False) -> Iterator[None]:
    """Make mmengine load checkpoints as data, without running code in them.

    mmengine (0.10) unpickles files that torch refuses, and on resuming it executes the
    config stored in a checkpoint. Inside this context, :func:`load_weights_only` reads
    files and URLs, through mmengine's ``register_scheme``, and the stored config is
    dropped. torch restricts all other loading to weights. With ``trust``, mmengine and
    :func:`load_weights_only`, with which anchors and teachers load, unpickle, and a
    warning is logged.
    """
    if trust:
        print_log(
            f'{TRUST}: checkpoints are loaded as they are. Any code in them runs with '
            'your rights.',
            logger='current',
            level=logging.WARNING,
        )
        token = trusting.set(True)
        try:
            with _switched_on(OPPOSITE):
                yield
        finally:
            trusting.reset(token)
        return
    _register(_guarded(load_weights_only), _guarded(load_url))
    _active.append(trust)
    try:
        with _switched_on(SWITCH):
            yield
    finally:
        _active.pop()
        if not _active:  # no outer guard
            _register(load_from_local, load_from_http)


@contextmanager
def _switched_on(switch: str) -> Iterator[None]:
    """Switch torch to load weights alone, or anything, if a caller leaves it open."""
    before = {name: os.environ.pop(name, None) for name in (SWITCH, OPPOSITE)}
    os.environ[switch] = '1'
    try:
        yield
    finally:
        del os.environ[switch]
        os.environ.update({k: v for k, v in before.items() if v is not None})


def _register(local: Callable, http: Callable) -> None:
    CheckpointLoader.register_scheme('', local, force=True)
    CheckpointLoader.register_scheme(('http://', 'https://'), http, force=True)


def _guarded(load: Callable[[str], dict[str, Any]]) -> Callable:
    """Return an mmengine loader; callers move the tensors to their device."""

    def load_from_guarded(filename: str, map_location: Any = None) -> dict[str, Any]:
        try:
            checkpoint = load(filename)
        except UntrustedCheckpointError as error:
            raise UntrustedCheckpointError(f'{error}; {TO_TRUST} ({KEYS})') from None
        except ValueError as error:
            raise ValueError(f'{error} ({KEYS})') from None
        if isinstance(checkpoint.get('meta'), dict):
            for key in ('cfg', 'config'):
                checkpoint['meta'].pop(key, None)
        return checkpoint

    return load_from_guarded
