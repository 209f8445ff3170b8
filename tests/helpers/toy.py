from copy import deepcopy
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.runner import Runner

TOY = Path(__file__).parents[2] / 'configs' / 'toy'
CONFIGS = dict(
    seg='setr-naive_snnetv2-fast-slow_1xb16-300',
    depth='dpt_snnetv2-fast-slow_1xb16-300',
    det='mask-rcnn_snnetv2-fast-slow_1xb8-300',
    cls='cls_snnetv2-fast-slow_1xb16-600',
)


def without_weights(cfg):
    """Remove ``init_cfg`` from a config or list of configs, at any depth."""
    for part in cfg.values() if isinstance(cfg, dict) else cfg:
        if isinstance(part, (dict, list)):
            without_weights(part)
    if isinstance(cfg, dict):
        cfg.pop('init_cfg', None)


def small_toy(task, work_dir):
    """Return a task's stitched toy config: no pretrained weights, few small steps."""
    cfg = Config.fromfile(TOY / f'{CONFIGS[task]}_toy-scenes-64x64.py')
    without_weights(cfg.model)
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    cfg.default_hooks.stitch_statistics.num_images = 4
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.train_dataloader.update(batch_size=2)
    cfg.test_dataloader.update(batch_size=2)
    cfg.test_dataloader.dataset.num_scenes = 4
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.param_scheduler = []
    cfg.train_cfg.max_iters, cfg.default_hooks.checkpoint.interval = 2, 1
    return cfg


@pytest.fixture
def task():
    """Task of the toy config; tests of several tasks parametrise it."""
    return 'seg'


@pytest.fixture
def toy_cfg(task, tmp_path):
    return small_toy(task, tmp_path)


def runner_of(cfg, stitches='all', **test_cfg):
    """Build a runner that tests stitches, from a copy of a config."""
    cfg = deepcopy(cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches=stitches, **test_cfg)
    return Runner.from_cfg(cfg)
