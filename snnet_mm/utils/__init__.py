"""Small helpers that any part may use."""

from .checkpoint import UntrustedCheckpointError, load_weights_only
from .config_file import check_outline, load_config, mappings_in
from .config_names import register_config_names
from .distributed import among_ranks, prepare_cpu_distributed
from .files import (
    AtomicBackend,
    UnwritableError,
    atomic_path,
    check_writable,
    remove_leftovers,
)
from .guarded_loading import guard_checkpoints
from .logging import quiet_terminal
from .ops import check_ops, check_ops_for
from .random import isolated_rng, seed_everything, shared_seed

__all__ = [
    'AtomicBackend',
    'UntrustedCheckpointError',
    'UnwritableError',
    'atomic_path',
    'check_outline',
    'check_writable',
    'check_ops',
    'check_ops_for',
    'guard_checkpoints',
    'isolated_rng',
    'load_config',
    'load_weights_only',
    'mappings_in',
    'among_ranks',
    'quiet_terminal',
    'remove_leftovers',
    'prepare_cpu_distributed',
    'register_config_names',
    'seed_everything',
    'shared_seed',
]
