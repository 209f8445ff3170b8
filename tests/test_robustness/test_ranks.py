"""Several ranks on a CPU: they agree, may change in number, and wait not for ever."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import rank_hooks  # noqa: F401
import torch
import torch.distributed as dist
from killing import wait
from mmengine.runner import Runner
from ranks import fork_ranks, run_ranks

from snnet_mm.training import run
from snnet_mm.utils import closing_process_group, load_weights_only
from snnet_mm.utils.distributed import prepare_distributed


@pytest.fixture
def cfg(run_cfg):
    """Six iterations with a schedule, and SyncBN in the head."""
    cfg = run_cfg
    cfg.default_hooks.stitch_init.num_images = 8
    cfg.custom_hooks = [dict(type='RankRecorder')]
    cfg.train_dataloader.batch_size = 1
    cfg.train_dataloader.dataset.num_scenes = 40
    cfg.train_cfg.max_iters = 6
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, end=3, by_epoch=False),
        dict(type='CosineAnnealingLR', begin=3, end=6, by_epoch=False),
    ]
    cfg.default_hooks.checkpoint.update(interval=3, max_keep_ckpts=-1)
    cfg.find_unused_parameters = True
    cfg.model.decode_head.norm_cfg.type = 'SyncBN'
    cfg.env_cfg.dist_cfg.timeout = 50
    return cfg


def training(cfg, folder, work=Runner.train):
    """Return what trains on one rank."""

    def run(rank):
        cfg.work_dir, cfg.launcher = str(folder), 'pytorch'
        prepare_distributed(cfg)
        work(Runner.from_cfg(cfg))
        dist.destroy_process_group()

    return run


def train(number, cfg, folder):
    """Train on some ranks; return what each recorded."""
    run_ranks(number, training(cfg, folder), folder)
    return [torch.load(path) for path in sorted(folder.glob('rank_*.pth'))]


@pytest.mark.slow
def test_ranks_agree_and_another_number_goes_on(cfg, tmp_path):
    first, second = train(2, cfg, tmp_path / 'two')
    assert len(set(first['stitches'])) > 1
    # One rank goes on from what two have trained.
    (folder := tmp_path / 'resumed').mkdir()
    shutil.copy(tmp_path / 'two' / 'iter_3.pth', folder)
    cfg.resume = True
    (record,) = train(1, cfg, folder)
    for key in ('stitches', 'rates'):
        assert first[key] == second[key]
        assert record[key] == first[key][3:]
    hub = load_weights_only(folder / 'iter_6.pth')['message_hub']
    assert sum(hub['runtime_info']['stitch_histogram'].values()) == 6


@pytest.mark.slow
def test_ranks_do_not_outlive_one_that_dies(cfg, tmp_path):
    cfg.train_cfg.max_iters = 100_000
    cfg.default_hooks.checkpoint.interval = 5
    folder = tmp_path / 'run'

    def work(runner):
        with pytest.raises(RuntimeError), closing_process_group():
            runner.train()
        (folder / 'said').touch()
        os._exit(0)  # there is nobody to leave the group with

    survivor, victim = fork_ranks(2, training(cfg, folder, work), folder)
    while not (folder / 'iter_5.pth').exists():
        time.sleep(0.05)
        assert os.waitpid(survivor, os.WNOHANG) == (0, 0)
    os.kill(victim, signal.SIGKILL)
    assert wait(victim)
    # Killed if it takes longer than a minute.
    assert not wait(survivor, seconds=60)
    assert (folder / 'said').exists()


@pytest.mark.slow
def test_no_thread_of_a_group_outlives_a_run(cfg, tmp_path):
    """Such a thread can abort the process at its end."""
    cfg.train_cfg.update(max_iters=1, val_interval=1)

    def work(rank):
        runner = run.train(cfg, tmp_path / 'run', launcher='pytorch')
        assert runner.iter == 1
        threads = Path('/proc/self/task').glob('*/comm')
        names = {thread.read_text().strip() for thread in threads}
        (tmp_path / f'{rank}.json').write_text(json.dumps([*names]))

    run_ranks(2, work, tmp_path / 'run')
    for rank in (0, 1):
        names = json.loads((tmp_path / f'{rank}.json').read_text())
        assert not any('gloo' in name for name in names)
