from pathlib import Path

import pytest
from mmengine.runner import Runner
from running_here import run_here  # noqa: F401
from small import small


def short_config(name):
    """A config without validation, named apart from other runs."""
    cfg = small('tiny', val=False)
    cfg.experiment_name = cfg.visualizer.name = name
    cfg.test_dataloader.batch_size = 1
    return cfg


@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    """A checkpoint after two iterations, whose imports later forks inherit."""
    cfg = short_config('trained')
    cfg.work_dir = str(tmp_path_factory.mktemp('trained'))
    cfg.train_cfg.max_iters, cfg.test_cfg.stitches = 2, [0]
    runner = Runner.from_cfg(cfg)
    runner.train()
    runner.test()
    return Path(cfg.work_dir) / 'iter_2.pth'


@pytest.fixture
def run_cfg(tmp_path, trained):
    """A modifiable config for runs in several processes."""
    return short_config(tmp_path.name)
