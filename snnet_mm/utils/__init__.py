"""Small helpers that any part may use."""

from .checkpoint import (
    UntrustedCheckpointError,
    guard_checkpoints,
    load_weights_only,
)
from .checks import check, is_number, is_whole, refusal
from .config_file import check_ops, check_ops_for, load_config, merge_options
from .distributed import (
    closing_process_group,
    launched_rank,
    prepare_cpu_distributed,
)
from .files import (
    AtomicBackend,
    UnwritableError,
    atomic_path,
    check_writable,
    read_json,
    remove_leftovers,
    require,
    write_json,
)
from .logging import quiet_terminal
from .random import isolated_rng, seed_everything, shared_seed
from .registering import MOVED_SETTINGS, register, suggesting_types
from .work_dir_lock import work_dir_lock

__all__ = [
    'MOVED_SETTINGS', 'AtomicBackend', 'UntrustedCheckpointError', 'UnwritableError',
    'atomic_path', 'check', 'check_ops', 'check_ops_for', 'check_writable',
    'closing_process_group', 'guard_checkpoints', 'is_number', 'is_whole',
    'isolated_rng', 'launched_rank', 'load_config', 'load_weights_only',
    'merge_options', 'prepare_cpu_distributed', 'quiet_terminal', 'read_json',
    'refusal', 'register', 'remove_leftovers', 'require', 'seed_everything',
    'shared_seed', 'suggesting_types', 'work_dir_lock', 'write_json',
]  # fmt: skip
