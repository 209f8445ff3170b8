"""Small helpers that any part may use."""

from snnet_mm.runtime.checks import check, is_number, is_whole, refusal

from .checkpoint_guard import guard_checkpoints, read_ahead
from .checkpoints import UntrustedCheckpointError, load_fitting, load_weights_only
from .command_line import ToolParser, check_file, parse_size, run_command
from .config_file import dicts_in, load_config, merge_options, set_length
from .distributed import closing_process_group, launched_rank, prepare_cpu_distributed
from .files import (
    AtomicBackend,
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
from .logging import quiet_terminal
from .machine import machine
from .precision_gain import print_gains
from .random import isolated_rng, seed_everything, shared_seed
from .registering import register, suggesting_types
from .work_dir_lock import folder_lock, work_dir_lock
