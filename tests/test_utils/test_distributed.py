import copy
import os

import pytest
import torch
from launching import run_on_two_ranks
from mmengine.config import Config
from torch import nn

from snnet_mm.utils import distributed, prepare_cpu_distributed
from snnet_mm.utils.checkpoints import load_url

NAMES = 'RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT'


def config(launcher='pytorch', **changes):
    norm, neck = dict(type='SyncBN', requires_grad=True), dict(norm=dict(type='LN'))
    heads = [dict(heads=(dict(norm=dict(type=nn.SyncBatchNorm)),))]
    cfg = dict(
        launcher=launcher,
        env_cfg=dict(cudnn_benchmark=True, dist_cfg=dict(backend='nccl')),
        find_unused_parameters=True,
        sync_bn='torch',
        custom_hooks=[dict(type='EMAHook')],
        model=dict(norm_cfg=norm, auxiliary_head=heads, neck=neck),
    )
    return Config(cfg | changes)


@pytest.fixture
def initialised(monkeypatch):
    """No GPU, and gloo as if it were running."""
    monkeypatch.setattr(distributed, 'get_device', lambda: 'cpu')
    monkeypatch.setattr(distributed.dist, 'is_initialized', lambda: True)


@pytest.mark.parametrize('launcher, device', [('none', 'cpu'), ('pytorch', 'cuda')])
def test_nothing_changes_with_gpus_or_without_a_launcher(monkeypatch, launcher, device):
    monkeypatch.setattr(distributed, 'get_device', lambda: device)
    for cfg in (config(launcher), Config(dict(model=dict()))):
        before = copy.deepcopy(cfg.to_dict())
        prepare_cpu_distributed(cfg)
        assert cfg.to_dict() == before
    assert not distributed.dist.is_initialized()


def test_what_changes_without_gpus(initialised):
    cfg = config()
    expected = copy.deepcopy(cfg.to_dict())
    expected['env_cfg']['dist_cfg']['backend'] = 'gloo'
    expected['sync_bn'] = None
    expected['custom_hooks'].append(dict(type='SyncBuffersHook'))
    expected['model']['norm_cfg']['type'] = 'BN'
    expected['model']['auxiliary_head'][0]['heads'][0]['norm']['type'] = 'BN'
    expected['model_wrapper_cfg'] = dict(
        type='MMDistributedDataParallel',
        broadcast_buffers=False,
        find_unused_parameters=True,
        device_ids=None,
    )
    prepare_cpu_distributed(cfg)
    assert cfg.to_dict() == expected
    prepare_cpu_distributed(cfg)
    assert cfg.to_dict() == expected


@pytest.fixture
def no_rank(monkeypatch):
    """An environment that nothing was launched in; restored afterwards."""
    names = {name for names in distributed.LAUNCHERS.values() for name in names}
    for name in (*names, 'MASTER_ADDR', 'MASTER_PORT'):
        # Set first, so that what the tested code sets is undone as well.
        monkeypatch.setenv(name, '')
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize('launcher, name', [('slurm', 'SLURM'), ('mpi', 'OMPI_COMM')])
def test_a_launcher_that_did_not_launch_is_said(no_rank, launcher, name):
    no_rank.setattr(distributed, 'get_device', lambda: 'cpu')
    words = f"launcher='{launcher}', but {name}_.*, {name}_.*, {name}_.* not set"
    with pytest.raises(ValueError, match=words):
        prepare_cpu_distributed(config(launcher))


def test_launchers_tell_torch(no_rank, tmp_path):
    scontrol = tmp_path / 'scontrol'
    scontrol.write_text('#!/bin/sh\necho "$@" >"$0.args"\necho node3\necho node7\n')
    scontrol.chmod(0o755)
    no_rank.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
    told = dict(PROCID='5', NTASKS='8', LOCALID='1', NODELIST='node[3,7]')
    for name, value in told.items():
        no_rank.setenv(f'SLURM_{name}', value)
    distributed._set_environment('slurm')
    found = [os.environ[name] for name in NAMES]
    assert found == ['5', '8', '1', 'node3', '29500']
    assert (tmp_path / 'scontrol.args').read_text() == 'show hostnames node[3,7]\n'
    # The address and port of a user are kept.
    for name, value in dict(RANK='1', SIZE='2', LOCAL_RANK='0').items():
        no_rank.setenv(f'OMPI_COMM_WORLD_{name}', value)
    no_rank.setenv('MASTER_PORT', '123')
    distributed._set_environment('mpi')
    assert [os.environ[name] for name in NAMES] == ['1', '2', '0', 'node3', '123']


def load_on_rank(rank, folder):
    """Load a URL, in processes that write down who downloads."""
    os.environ.update(LOCAL_RANK=str(rank), TORCH_HOME=str(folder / 'cache'))
    store = f'file://{folder}/store'
    distributed.dist.init_process_group('gloo', store, rank=rank, world_size=2)

    def download(url, path, progress):
        (folder / f'rank_{rank}_{url[-5:]}').touch()
        if 'none' in url:
            raise OSError('no network')
        torch.save(dict(a=torch.ones(1)), path)

    torch.hub.download_url_to_file = download
    assert load_url('https://x.org/a.pth')['a'].item() == 1
    with pytest.raises(ValueError, match='no network'):
        load_url('https://x.org/none.pth')
    distributed.dist.destroy_process_group()


def test_first_process_first_downloads_once_and_fails_everywhere(tmp_path):
    run_on_two_ranks(load_on_rank, tmp_path)
    # The second tries what the first could not fetch.
    found = sorted(path.name for path in tmp_path.glob('rank_*'))
    assert found == ['rank_0_a.pth', 'rank_0_e.pth', 'rank_1_e.pth']


def test_prepare_cpu_distributed_refuses_gpus_that_torch_cannot_use(monkeypatch):
    cfg = Config(dict(launcher='pytorch'))
    monkeypatch.setattr(distributed, 'get_device', lambda: 'cpu')
    monkeypatch.setattr(distributed.shutil, 'which', lambda name: f'/usr/bin/{name}')
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    with pytest.raises(ValueError, match='driver may be too old.*--device cpu'):
        distributed.prepare_cpu_distributed(cfg)
