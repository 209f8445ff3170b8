"""One switch for the process: checkpoints are data, unless the user trusts them."""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Callable
from typing import Any

from mmengine.logging import print_log
from mmengine.runner.checkpoint import CheckpointLoader

from .checkpoint import UntrustedCheckpointError, load_weights_only

FLAG = '--trust-checkpoint'
_ADVICE = (
    f'nothing of it was run. If you trust where it comes from, pass {FLAG} '
    '(config key: load_from; of tools/test.py: the argument checkpoint)'
)


def guard_checkpoints(trust: bool = False) -> None:
    """Let mmengine read checkpoints of this process only as data.

    mmengine falls back to unpickling whatever a file holds, and on resuming it runs
    the config that is in the checkpoint. After this call every way of loading reads
    weights only, and that config is dropped.

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
        return
    # For loaders that call torch themselves, and mmengine's falling back.
    os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'
    for prefix, loader in list(CheckpointLoader._schemes.items()):
        loader = load_from_local if prefix == '' else loader
        CheckpointLoader.register_scheme(prefix, _guarded(loader), force=True)


def load_from_local(filename: str, map_location: Any = None) -> dict[str, Any]:
    """Read a file; all parts that load move tensors to their own device."""
    return load_weights_only(filename)


def _guarded(loader: Callable) -> Callable:
    @functools.wraps(loader)
    def load(filename: str, map_location: Any = None) -> dict[str, Any]:
        try:
            checkpoint = loader(filename, map_location)
        except UntrustedCheckpointError as error:
            raise UntrustedCheckpointError(f'{error}; {_ADVICE}') from None
        except pickle.UnpicklingError:
            raise UntrustedCheckpointError(
                f'checkpoint {filename} holds more than weights; {_ADVICE}'
            ) from None
        except ValueError as error:
            raise ValueError(
                f'{error} (config keys: load_from, init_cfg.checkpoint; of '
                'tools/test.py: the argument checkpoint)'
            ) from None
        meta = checkpoint.get('meta')
        if isinstance(meta, dict):
            for key in ('cfg', 'config'):
                meta.pop(key, None)
        return checkpoint

    return load
