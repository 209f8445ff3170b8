"""Shared helpers; those that require torch or mmengine are imported lazily."""

from importlib import import_module
from typing import Any

from snnet_mm.runtime.checks import check, is_number, is_whole, refusal

from .command_line import (
    ToolParser,
    check_file,
    parse_size,
    run_command,
    tool_command,
)
from .files import (
    UnwritableError,
    atomic_path,
    check_writable,
    digest,
    link_latest,
    read_json,
    remove_leftovers,
    require,
    write_json,
)
from .logging import plural, quiet_coco, quiet_terminal
from .machine import machine
from .work_dir_lock import work_dir_lock

# Modules that import torch or mmengine, and the names that they export.
_LATE = dict(
    checkpoint_guard=('guard_checkpoints',),
    checkpoints=('UntrustedCheckpointError', 'load_fitting', 'load_weights_only'),
    configs=('dicts_in', 'load_config', 'model_config', 'runner_config'),
    distributed=('closing_process_group', 'launched_rank', 'prepare_distributed'),
    random=('isolated_rng', 'seed_everything', 'shared_seed'),
)  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _LATE.items():
        if name in names:
            return getattr(import_module(f'.{module}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
