"""Interrupted training goes on as if nothing had happened."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.models import find_stitched_backbone

PIPELINE = [
    dict(type='RandomResize', scale=(64, 64), ratio_range=(1.0, 1.5)),
    dict(type='RandomCrop', crop_size=(64, 64), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]


@pytest.fixture
def random_cfg(toy_cfg):
    """Everything random that training has: augmentation, drop path, BN, stitches."""
    toy_cfg.train_dataloader.dataset.pipeline = PIPELINE
    for anchor in toy_cfg.model.backbone.anchors:
        anchor.drop_path_rate = 0.3
    toy_cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, end=5, by_epoch=False),
        dict(type='CosineAnnealingLR', begin=5, end=20, by_epoch=False),
    ]
    toy_cfg.default_hooks.logger.interval = 4
    toy_cfg.default_hooks.checkpoint.update(interval=5, max_keep_ckpts=-1)
    toy_cfg.train_cfg.max_iters = 10
    return toy_cfg


def run(cfg, name, start=None, **changes):
    """Train in a folder of its own, from the beginning or resumed from a checkpoint."""
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    # Runners of the same name would share the history of their losses, and the file.
    cfg.experiment_name = cfg.visualizer.name = f'{Path(cfg.work_dir).name}_{name}'
    cfg.work_dir = str(Path(cfg.work_dir) / name)
    if start is not None:
        Path(cfg.work_dir).mkdir()
        shutil.copy(start, cfg.work_dir)
        cfg.resume = True
    runner = Runner.from_cfg(cfg)
    runner.train()
    return Path(cfg.work_dir)


def load(path):
    return torch.load(path, weights_only=False)


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


def logged(work_dir):
    """What was logged by step, times left out."""
    (path,) = work_dir.glob('*/vis_data/scalars.json')
    lines = map(json.loads, path.read_text().splitlines())
    return {
        line['step']: {k: v for k, v in line.items() if 'time' not in k}
        for line in lines
    }


def assert_exact(straight, resumed, start, end):
    whole, pieces = (load(d / f'iter_{end}.pth') for d in (straight, resumed))
    for key in ('state_dict', 'optimizer', 'param_schedulers', 'ema_state_dict'):
        if key in whole:
            assert_same(whole[key], pieces[key])
    losses = [
        checkpoint['message_hub']['log_scalars']['train/loss'].data
        for checkpoint in (whole, pieces)
    ]
    assert losses[0][0].tolist() == losses[1][0].tolist()
    assert len(losses[0][0]) == end
    expected = {k: v for k, v in logged(straight).items() if k > start}
    assert len(expected) >= 1
    assert logged(resumed) == expected


@pytest.mark.parametrize('num_workers', [0, 2])
def test_resumed_training_is_exact(random_cfg, num_workers):
    random_cfg.train_dataloader.num_workers = num_workers
    random_cfg.train_dataloader.persistent_workers = num_workers > 0
    straight = run(random_cfg, 'straight')
    resumed = run(random_cfg, 'resumed', straight / 'iter_5.pth')
    assert_exact(straight, resumed, 5, 10)
