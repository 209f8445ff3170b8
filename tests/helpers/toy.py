from copy import deepcopy
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.runner import Runner

TOY = Path(__file__).parents[2] / 'configs' / 'toy'


METHODS = dict(seg='setr-naive', depth='dpt')


@pytest.fixture
def task():
    """Task of the toy config; tests of both tasks parametrise it."""
    return 'seg'


@pytest.fixture
def toy_cfg(task, tmp_path):
    """The stitched toy config, with random anchors and few small steps."""
    cfg = Config.fromfile(
        TOY / f'{METHODS[task]}_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
    )
    cfg.work_dir = str(tmp_path)
    cfg.log_level = 'ERROR'
    for anchor in cfg.model.backbone.anchors:
        del anchor['init_cfg']
    del cfg.model.decode_head['init_cfg']
    cfg.default_hooks.stitch_statistics.num_images = 4
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.train_dataloader.update(batch_size=2)
    cfg.test_dataloader.update(batch_size=2)
    cfg.test_dataloader.dataset.num_scenes = 4
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    cfg.param_scheduler = []
    cfg.train_cfg.max_iters = 2
    cfg.default_hooks.checkpoint.interval = 1
    return cfg


def runner_of(cfg, stitches='all', **test_cfg):
    """A runner that tests stitches, by a copy of a config."""
    cfg = deepcopy(cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches=stitches, **test_cfg)
    return Runner.from_cfg(cfg)
