"""The toy configs, made smaller; their models and images."""

from copy import deepcopy
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from snnet_mm.utils import dicts_in

TOY = Path(__file__).parents[2] / 'configs' / 'toy'
SEGMENTOR = TOY / 'setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
# A head of one convolution to the labels' size.
ONE_CONV = dict(num_convs=1, kernel_size=1, up_scale=4)
CONFIGS = dict(
    seg='setr-naive_snnetv2-fast-slow_1xb16-300',
    depth='dpt_snnetv2-fast-slow_1xb16-300',
    det='mask-rcnn_snnetv2-fast-slow_1xb8-300',
    cls='cls_snnetv2-fast-slow_1xb16-600',
)

# Widths and depths of anchors.
SHORT = ((8, 2), (12, 3))
SIZES = ((64, 64), (50, 90), (130, 71))


_read = cache(Config.fromfile)


def without_weights(cfg):
    """Remove ``init_cfg`` from a config, at any depth."""
    for part in dicts_in(cfg):
        part.pop('init_cfg', None)


def small_toy(task, work_dir):
    """Return a task's stitched toy config: no pretrained weights, few small steps."""
    cfg = deepcopy(_read(TOY / f'{CONFIGS[task]}_toy-scenes-64x64.py'))
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


def narrow_toy(anchor=None, sizes=((8, 3), (12, 5)), config=SEGMENTOR, **backbone):
    """Return a toy config; by default anchors have 3 and 5 blocks, widths 8 and 12."""
    cfg = deepcopy(_read(config))
    cfg.test_dataloader.dataset.num_scenes = 4
    anchors = cfg.model.backbone.anchors
    anchors += [deepcopy(anchors[0]) for _ in sizes[len(anchors) :]]
    for settings, (width, depth) in zip(anchors, sizes, strict=True):
        settings.arch = dict(embed_dims=width, depth=depth, num_heads=2)
        settings.update(anchor or {})
    cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=2)
    cfg.model.backbone.update(backbone)
    if cfg.model.backbone.type == 'SNNetv1':
        cfg.model.backbone.pop('stitching_layer')
    head = dict(in_channels=sizes[-1][0], channels=8, **ONE_CONV)
    cfg.model.decode_head.update(head)
    return cfg


@torch.no_grad()
def balance(model, size=64):
    """Make each class of a segmentor as likely as another, on noise."""
    noise = torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0))
    head = model.decode_head
    head.conv_seg.bias -= head(model.backbone(noise)).mean((0, 2, 3))
    return model


@torch.no_grad()
def disturb(model, std=0.3):
    """Draw weights and statistics large enough for all parts to affect the output."""
    for parameter in model.parameters():
        parameter.normal_(std=std)
    for name, buffer in model.named_buffers():
        if name.endswith('running_mean'):
            buffer.normal_()
        if name.endswith('running_var'):
            buffer.uniform_(0.5, 2)
    return model.eval()


def smooth_images(sizes=SIZES):
    """Yield RGB images of smooth noise."""
    random = np.random.default_rng(0)
    for size in sizes:
        noise = random.integers(0, 256, (12, 12, 3), np.uint8)
        yield cv2.resize(noise, size[::-1], interpolation=cv2.INTER_CUBIC)


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
