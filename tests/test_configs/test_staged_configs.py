"""Configs of networks with stages: their stitches, costs and rates."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope

from snnet_mm.evaluation import cost_table

pytest.importorskip('timm')

CONFIGS = Path(__file__).parents[2] / 'configs'
STITCHED = sorted(
    p
    for family in ('swin', 'resnet', 'levit')
    for p in CONFIGS.rglob(f'*snnetv1-{family}*.py')
)
IN1K = 'imagenet/snnetv1-{}_in1k-224x224.py'
TINY = 'imagenet/tiny/{}_tinyimagenet20-64x64.py'
CAMVID = 'swin/camvid/upernet_{}_1xb8-1000_camvid-240x176.py'


def name_of(path):
    return str(path.relative_to(CONFIGS))


@cache
def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return cfg, MODELS.build(cfg.model)


@pytest.mark.parametrize(
    'name, stages, numbers, gflops',
    [
        # Their costs are compared with the published ones in test_staged_backbone.py.
        (IN1K.format('swin-ti-s-b_8xb128-50e'), (0, 1, 2), (3, 38), None),
        (IN1K.format('resnet18-50_8xb128-30e'), (1, 2), (2, 8), None),
        (IN1K.format('resnet18-swin-ti_8xb128-30e'), (1, 2), (2, 6), None),
        (IN1K.format('levit-192-256_8xb128-50e'), (0, 1), (2, 6), None),
        (
            TINY.format('snnetv1-swin-fast-slow_1xb64-600'),
            (0, 1, 2),
            (2, 7),
            (0.01219, 0.04291),
        ),
        (
            TINY.format('snnetv1-resnet-fast-slow_1xb64-600'),
            (1, 2),
            (2, 8),
            (0.01064, 0.02225),
        ),
        (CAMVID.format('snnetv1-swin-fast-slow'), (0, 1, 2), (2, 7), (0.3329, 0.7187)),
        (
            'swin/upernet_snnetv1-swin-ti-s_8xb2-160k_ade20k-512x512.py',
            (0, 1, 2),
            (2, 19),
            (237.47, 260.58),
        ),
        ('swin/mask-rcnn_snnetv1-swin-ti-s_8xb2-3x_coco.py', (0, 1, 2), (2, 19), None),
    ],
)
def test_stitches_and_costs(name, stages, numbers, gflops):
    cfg, model = load(CONFIGS / name)
    space = model.backbone.space
    assert space.stages == stages
    anchors = len(space.anchor_ids)
    assert (anchors, len(space) - anchors) == numbers
    if gflops:
        costs = cost_table(model, cfg.test_cfg.get('input_size'))
        found = [costs[i].flops / 1e9 for i in space.anchor_ids]
        assert found == pytest.approx(gflops, rel=5e-3)
    init = cfg.default_hooks.stitch_init
    sampling = cfg.default_hooks.stitch_sampling
    assert (init.type, init.num_images) == ('StitchInitHook', 100)
    assert sampling.sampler.type == 'UniformSampler'


@pytest.mark.parametrize('path', STITCHED, ids=name_of)
def test_anchors_have_a_tenth_of_the_rate_of_stitching_layers(path):
    cfg, model = load(path)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    names = {p: n for n, p in model.named_parameters()}
    rates = {}
    for group in wrapper.optimizer.param_groups:
        for p in group['params']:
            part = names[p].split('.')[1 if names[p].startswith('backbone') else 0]
            rates.setdefault(part, set()).add(round(group['lr'], 10))
            decays = p.ndim > 1 and 'relative' not in names[p]
            decays &= 'attention_biases' not in names[p]
            assert (group['weight_decay'] > 0) == decays, names[p]
    (anchors,), (layers,) = rates.pop('anchors'), rates.pop('stitching_layers')
    assert layers == pytest.approx(10 * anchors)
    if 'head' in rates:
        # The classifiers are the anchors' own; dense heads have the recipe's rate.
        assert rates == dict(head={anchors})
        paper = 0.05 if '30e' in path.name else 1e-4
        assert layers == (paper if 'in1k' in path.name else 1e-3)
    elif 'camvid' in path.name:
        assert set.union(*rates.values()) == {layers} == {1e-3}
    else:
        assert set.union(*rates.values()) == {anchors}
        assert anchors == (6e-5 if 'ade20k' in path.name else 1e-4)


@pytest.mark.parametrize(
    'name, millions',
    [
        # mmsegmentation's and mmdetection's models have as many.
        ('upernet_swin-ti_8xb2-160k_ade20k-512x512', 59.94),
        ('upernet_swin-s_8xb2-160k_ade20k-512x512', 81.26),
        ('mask-rcnn_swin-ti_8xb2-3x_coco', 47.79),
        ('mask-rcnn_swin-s_8xb2-3x_coco', 69.11),
    ],
)
def test_dense_models_are_those_of_openmmlab(name, millions):
    cfg, model = load(CONFIGS / f'swin/{name}.py')
    total = sum(p.numel() for p in model.parameters())
    assert total / 1e6 == pytest.approx(millions, abs=0.005)
    shifts = [
        m.shift_size
        for m in model.backbone.modules()
        if type(m).__name__ == 'SwinTransformerBlock'
    ]
    assert shifts == [(0, 0), (3, 3)] * (len(shifts) // 2)
    assert cfg.train_dataloader.batch_size == 2
    end = max(s.end for s in cfg.param_scheduler)
    assert end == cfg.train_cfg.max_iters
    # 36 epochs of the 117266 images with objects, batches of 16.
    epochs = 36 * math.ceil(117266 / 16)
    assert end == (160000 if 'ade20k' in name else epochs)


def test_schedules_on_imagenet():
    for name, epochs, optimizer in (
        ('swin-ti-s-b_8xb128-50e', 50, 'AdamW'),
        ('levit-192-256_8xb128-50e', 50, 'AdamW'),
        ('resnet18-50_8xb128-30e', 30, 'SGD'),
        ('resnet18-swin-ti_8xb128-30e', 30, 'SGD'),
    ):
        cfg, model = load(CONFIGS / IN1K.format(name))
        assert cfg.optim_wrapper.optimizer.type == optimizer
        assert cfg.train_dataloader.batch_size * 8 == 1024
        iterations = epochs * math.ceil(1281167 / 1024)
        assert cfg.train_cfg.max_iters == cfg.param_scheduler[-1].end == iterations
        starts = [a.init_cfg.checkpoint for a in cfg.model.backbone.anchors]
        ends = [e.init_cfg.checkpoint for e in cfg.model.head.anchor_heads]
        assert starts == ends
        for anchor, start in zip(cfg.model.backbone.anchors, starts, strict=True):
            assert start.startswith(f'timm://{anchor.model}.')
        widths = [a.block_dims[-1] for a in model.backbone.anchors]
        assert [e.in_channels for e in model.head.anchor_heads] == widths
