"""Small helpers that any part may use."""

from .checkpoint import load_weights_only
from .distributed import prepare_cpu_distributed
from .files import atomic_path
from .logging import only_warnings
from .random import isolated_rng, shared_seed

__all__ = [
    'atomic_path',
    'isolated_rng',
    'load_weights_only',
    'only_warnings',
    'prepare_cpu_distributed',
    'shared_seed',
]
