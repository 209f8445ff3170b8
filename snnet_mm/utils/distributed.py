"""Distributed processes, with or without GPUs."""

import gc
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import barrier

from snnet_mm.runtime.checks import check

from .configs import dicts_in, step_name

SYNC_BN = 'SyncBN', 'MMSyncBN', 'SyncBatchNorm'
# Environment variables of each launcher for the rank, world size and local rank.
LAUNCHERS = dict(
    pytorch=('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    slurm=('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
    mpi=('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'OMPI_COMM_WORLD_LOCAL_RANK'),
)


def prepare_distributed(cfg: Config) -> None:
    """Adapt a launched config, in place, before its runner is built.

    Gradients are views of DDP's buckets, which saves a copy of them.

    mmengine's launchers and its DDP wrapper require GPUs. Without GPUs, gloo connects
    the processes, SyncBN becomes BN, and ranks average their buffers before every
    validation.

    Raises:
        ValueError: If GPUs were not hidden by ``--device cpu``, and torch sees none.
    """
    if cfg.get('launcher', 'none') == 'none':
        return
    # mmengine's default wrapper, and the views.
    wrapper = dict(type='MMDistributedDataParallel', broadcast_buffers=False)
    wrapper['find_unused_parameters'] = cfg.get('find_unused_parameters', False)
    wrapper['gradient_as_bucket_view'] = True
    own = cfg.get('model_wrapper_cfg')
    if get_device() != 'cpu':
        cfg.model_wrapper_cfg = own or wrapper
        return
    expected = "'cpu', to run on CPUs: this process has no GPU that torch can use"
    check(os.environ.get('CUDA_VISIBLE_DEVICES') == '', '--device', None, expected)
    cfg.merge_from_dict({'env_cfg.dist_cfg.backend': 'gloo'})
    for node in dicts_in(cfg._cfg_dict):
        if step_name(node) in SYNC_BN:
            node['type'] = 'BN'
    cfg.sync_bn = None
    cfg.model_wrapper_cfg = wrapper | dict(own or {}, device_ids=None)
    hooks, sync = cfg.get('custom_hooks') or [], dict(type='SyncBuffersHook')
    cfg.custom_hooks = [*hooks, *([] if sync in hooks else [sync])]
    if not dist.is_initialized():  # the runner checks this, too
        _set_environment(cfg.launcher)
        seconds = cfg.env_cfg.dist_cfg.get('timeout', 1800)
        dist.init_process_group('gloo', timeout=timedelta(seconds=seconds))


def launched_rank(launcher: str) -> int:
    """Return the rank of this process as set by a launcher; 0 without a launcher."""
    return int(os.environ.get(LAUNCHERS[launcher][0], 0)) if launcher != 'none' else 0


@contextmanager
def first_process_first() -> Iterator[None]:
    """Run the body in the first process of each machine, then in its others.

    What the first downloads is then in the cache of all. Every process must enter.
    """
    ranks = (os.environ.get(local) for *_, local in LAUNCHERS.values())
    first = int(next(filter(None, ranks), 0)) == 0
    if not first:
        barrier()
    try:
        yield
    finally:  # if it raises, too: the others would wait
        if first:
            barrier()


@contextmanager
def closing_process_group() -> Iterator[None]:
    """Destroy the process group, if there is one, once the body has succeeded."""
    yield
    if dist.is_initialized():
        # gloo threads that outlive the interpreter may abort the process. They end with
        # the last reference to the group: first those of models in reference cycles.
        gc.collect()
        dist.destroy_process_group()


def _set_environment(launcher: str) -> None:
    """Set the environment variables that torch reads from those of a launcher."""
    names = LAUNCHERS[launcher]
    if missing := [name for name in names if name not in os.environ]:
        raise ValueError(
            f'launcher={launcher!r}, but {", ".join(missing)} not set: start the tool '
            'by tools/dist_*.sh (pytorch), tools/slurm_*.sh (slurm) or mpirun (mpi)'
        )
    for name, source in zip(LAUNCHERS['pytorch'], names, strict=True):
        os.environ[name] = os.environ[source]
    if launcher == 'slurm' and 'MASTER_ADDR' not in os.environ:
        command = ['scontrol', 'show', 'hostnames', os.environ['SLURM_NODELIST']]
        hosts = subprocess.run(command, check=True, capture_output=True, text=True)
        os.environ['MASTER_ADDR'] = hosts.stdout.split()[0]
    os.environ.setdefault('MASTER_PORT', '29500')
