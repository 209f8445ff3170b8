import copy
import os

import pytest
import torch
import torch.distributed as dist
from mmengine.config import Config
from ranks import run_ranks
from torch import nn

from snnet_mm.utils import distributed, prepare_distributed
from snnet_mm.utils.checkpoints import load_url


def config(launcher='pytorch'):
    norm, neck = dict(type='SyncBN', requires_grad=True), dict(norm=dict(type='LN'))
    heads = [dict(heads=(dict(norm=dict(type=nn.SyncBatchNorm)),))]
    return Config(
        dict(
            launcher=launcher,
            env_cfg=dict(dist_cfg=dict(backend='nccl')),
            find_unused_parameters=True,
            sync_bn='torch',
            custom_hooks=[dict(type='EMAHook')],
            model=dict(norm_cfg=norm, auxiliary_head=heads, neck=neck),
        )
    )


WRAPPER = dict(
    type='MMDistributedDataParallel',
    broadcast_buffers=False,
    find_unused_parameters=True,
    gradient_as_bucket_view=True,
)


@pytest.mark.parametrize('own', [None, dict(type='MMFullyShardedDataParallel')])
@pytest.mark.parametrize('launcher', ['none', 'pytorch'])
def test_prepare_distributed_with_gpus_sets_only_wrapper(monkeypatch, launcher, own):
    monkeypatch.setattr(distributed, 'get_device', lambda: 'cuda')
    cfg = config(launcher)
    expected = copy.deepcopy(cfg.to_dict())
    if own:
        cfg.model_wrapper_cfg = expected['model_wrapper_cfg'] = own
    elif launcher != 'none':
        expected['model_wrapper_cfg'] = WRAPPER
    prepare_distributed(cfg)
    assert cfg.to_dict() == expected
    assert not dist.is_initialized()


def test_prepare_distributed_without_gpus(monkeypatch):
    monkeypatch.setattr(distributed, 'get_device', lambda: 'cpu')
    monkeypatch.setattr(dist, 'is_initialized', lambda: True)
    cfg = config()
    expected = copy.deepcopy(cfg.to_dict())
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '0')  # of a driver that is too old
    with pytest.raises(ValueError, match='no GPU that torch can use.*--device'):
        prepare_distributed(cfg)
    assert cfg.to_dict() == expected
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '')
    expected['env_cfg']['dist_cfg']['backend'] = 'gloo'
    expected['sync_bn'] = None
    expected['custom_hooks'].append(dict(type='SyncBuffersHook'))
    expected['model']['norm_cfg']['type'] = 'BN'
    expected['model']['auxiliary_head'][0]['heads'][0]['norm']['type'] = 'BN'
    expected['model_wrapper_cfg'] = dict(WRAPPER, device_ids=None)
    for _ in range(2):
        prepare_distributed(cfg)
        assert cfg.to_dict() == expected


def test_first_process_first_downloads_once_and_fails_everywhere(tmp_path):
    def load_on(rank):
        """Load a URL, and write down who downloads."""
        os.environ.update(TORCH_HOME=str(tmp_path / 'cache'))
        dist.init_process_group('gloo')

        def download(url, path, progress):
            (tmp_path / f'rank_{rank}_{url[-5:]}').touch()
            if 'none' in url:
                raise OSError('no network')
            torch.save(dict(a=torch.ones(1)), path)

        torch.hub.download_url_to_file = download
        assert load_url('https://x.org/a.pth')['a'].item() == 1
        with pytest.raises(ValueError, match='no network'):
            load_url('https://x.org/none.pth')
        dist.destroy_process_group()

    run_ranks(2, load_on, tmp_path)
    # The second tries what the first could not fetch.
    found = sorted(path.name for path in tmp_path.glob('rank_*'))
    assert found == ['rank_0_a.pth', 'rank_0_e.pth', 'rank_1_e.pth']
