"""Narrow toy models whose weights all affect the output, and images."""

from copy import deepcopy

import cv2
import numpy as np
import torch
from mmengine.config import Config
from tiny import ONE_CONV, TOY

SHORT = ((8, 2), (12, 3))
SIZES = ((64, 64), (50, 90), (130, 71))


def narrow_toy(anchor=None, sizes=((8, 3), (12, 5)), config=TOY, **backbone):
    """Return a toy config; by default anchors have 3 and 5 blocks, widths 8 and 12."""
    cfg = Config.fromfile(config)
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
