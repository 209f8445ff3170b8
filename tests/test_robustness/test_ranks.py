"""Several ranks on a CPU: they agree, may change in number, and wait not for ever."""

import os
import shutil
import signal
import socket
import time

import pytest
import rank_hooks  # noqa: F401
import torch
import torch.distributed as dist
from killing import fork, wait
from mmengine.runner import Runner

from snnet_mm.utils import closing_process_group, load_weights_only
from snnet_mm.utils.distributed import prepare_cpu_distributed


@pytest.fixture
def cfg(run_cfg):
    """Eight iterations with a schedule, and SyncBN in the head."""
    cfg = run_cfg
    cfg.default_hooks.stitch_init.num_images = 8
    cfg.custom_hooks = [dict(type='RankRecorder')]
    cfg.train_dataloader.batch_size = 1
    cfg.train_dataloader.dataset.num_scenes = 40
    cfg.train_cfg.max_iters = 8
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, end=3, by_epoch=False),
        dict(type='CosineAnnealingLR', begin=3, end=8, by_epoch=False),
    ]
    cfg.default_hooks.checkpoint.update(interval=4, max_keep_ckpts=-1)
    cfg.find_unused_parameters = True
    cfg.model.decode_head.norm_cfg.type = 'SyncBN'
    cfg.test_dataloader.dataset.num_scenes = 9  # padded, by two and four
    cfg.env_cfg.dist_cfg.timeout = 50
    return cfg


def fork_ranks(number, cfg, folder, work):
    """Ranks that do some work with a runner; their process ids."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        port = sock.getsockname()[1]

    def of_rank(rank):
        def run():
            env = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=number)
            env |= dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
            os.environ.update({k: str(v) for k, v in env.items()})
            cfg.work_dir, cfg.launcher = str(folder), 'pytorch'
            prepare_cpu_distributed(cfg)
            work(Runner.from_cfg(cfg))
            dist.destroy_process_group()

        return run

    return [fork(of_rank(rank), folder) for rank in range(number)]


def run_ranks(number, cfg, folder, work=Runner.train):
    for pid in fork_ranks(number, cfg, folder, work):
        wait(pid)
    return [torch.load(p) for p in sorted(folder.glob('rank_*.pth'))]


def test_ranks_agree_and_another_number_goes_on(cfg, tmp_path):
    number = 2
    ranks = run_ranks(number, cfg, tmp_path / 'many')
    assert len(ranks) == number
    assert all(other['stitches'] == ranks[0]['stitches'] for other in ranks)
    assert len(set(ranks[0]['stitches'])) > 1
    # Stitches and schedule are those of one rank.
    (one,) = run_ranks(1, cfg, tmp_path / 'one')
    assert one['stitches'] == ranks[0]['stitches']
    assert one['rates'] == ranks[0]['rates']
    # And go on so, from what many have trained, on one, and the other way round.
    for first, second, others in ((number, 1, 'many'), (1, number, 'one')):
        folder = tmp_path / f'{first}_{second}'
        folder.mkdir()
        shutil.copy(tmp_path / others / 'iter_4.pth', folder)
        cfg.resume = True
        for record in run_ranks(second, cfg, folder):
            for key in ('stitches', 'rates'):
                assert record[key] == one[key][4:]
        hub = load_weights_only(folder / 'iter_8.pth')['message_hub']
        assert sum(hub['runtime_info']['stitch_histogram'].values()) == 8


def test_ranks_do_not_outlive_one_that_dies(cfg, tmp_path):
    cfg.train_cfg.max_iters = 100_000
    cfg.default_hooks.checkpoint.interval = 5
    folder = tmp_path / 'run'

    def train(runner):
        with pytest.raises(RuntimeError), closing_process_group():
            runner.train()
        (folder / 'said').touch()
        os._exit(0)  # there is nobody to leave the group with

    survivor, victim = fork_ranks(2, cfg, folder, train)
    while not (folder / 'iter_5.pth').exists():
        time.sleep(0.05)
        assert os.waitpid(survivor, os.WNOHANG) == (0, 0)
    os.kill(victim, signal.SIGKILL)
    assert wait(victim)
    # Killed if it takes longer than a minute.
    assert not wait(survivor, seconds=60)
    assert (folder / 'said').exists()
