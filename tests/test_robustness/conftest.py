from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.runner import Runner
from running_here import run_here  # noqa: F401
from tiny import tiny_config


def without_validation():
    cfg = tiny_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    del cfg.default_hooks['stitch_statistics']  # half of the time of a short run
    return cfg


@pytest.fixture(scope='session')
def config(tmp_path_factory):
    """A config file that trains for three iterations."""
    path = tmp_path_factory.mktemp('config') / 'config.py'
    cfg = without_validation()
    cfg.train_cfg.max_iters = 3
    cfg.test_cfg.stitches = [0]
    cfg.dump(path)
    return path


@pytest.fixture(scope='session')
def trained(config, tmp_path_factory):
    """Its checkpoint after two iterations, whose imports later forks inherit."""
    cfg = Config.fromfile(config)
    cfg.work_dir = str(tmp_path_factory.mktemp('trained'))
    cfg.experiment_name = cfg.visualizer.name = 'trained'
    cfg.train_cfg.max_iters = 2
    runner = Runner.from_cfg(cfg)
    runner.train()
    runner.test()
    return Path(cfg.work_dir) / 'iter_2.pth'


@pytest.fixture
def run_cfg(tmp_path, trained):
    """A modifiable config for runs in several processes."""
    cfg = without_validation()
    cfg.experiment_name = cfg.visualizer.name = tmp_path.name
    cfg.test_dataloader.batch_size = 1
    return cfg
