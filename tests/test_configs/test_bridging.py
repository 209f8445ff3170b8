"""Configs of adapters across large gaps: networks, recipe and costs."""

from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from snnet_mm.evaluation import cost_table

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

BRIDGING = Path(__file__).parents[2] / 'configs/bridging'
IN1K = sorted(BRIDGING.glob('*.py'))
TINY = sorted(BRIDGING.glob('tiny/*.py'))
# GFLOPs of both networks, and over gaps from the first stage to each.
GFLOPS = {
    'resnet50-resnet50': (4.09, 4.09, 3.87, 3.58, 2.84, 1.67),
    'resnet50-swin-t': (4.09, 4.49, 4.19, 3.72, 2.99, 0.86),
    'vit-s-vit-s': (4.60, 4.60, 4.22, 3.84, 3.09, 2.33),
}


def name_of(path):
    return path.stem


def pair_of(path):
    return path.stem.split('_')[0].removeprefix('bridge-')


@cache
def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return cfg, MODELS.build(cfg.model)


def test_pairs_of_the_paper():
    names = ('resnet50', 'mobilenetv3-l', 'vit-s', 'swin-t')
    both = [('resnet50', b) for b in names[1:]] + [('vit-s', 'swin-t')]
    wanted = [f'{a}-{b}' for a, b in both] + [f'{b}-{a}' for a, b in both]
    wanted += [f'{a}-{a}' for a in names]
    assert sorted(wanted) == sorted(map(pair_of, IN1K))


@pytest.mark.parametrize('path', IN1K, ids=name_of)
def test_recipe_of_section_2(path):
    cfg, model = load(path)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == (
        'AdamW',
        2e-3,
        0.05,
    )
    assert set(cfg.optim_wrapper) == {'type', 'optimizer'}
    (cosine,) = cfg.param_scheduler
    # 10 epochs of 1281167 images in batches of 512.
    assert cosine.end == cfg.train_cfg.max_iters == 10 * 2503
    assert (cosine.begin, cosine.eta_min) == (0, 0)
    assert cfg.train_dataloader.batch_size * 8 == 512
    kinds = [t.type for t in cfg.train_dataloader.dataset.pipeline]
    assert kinds[2:4] == ['RandomFlip', 'AutoAugment']
    assert cfg.model.head.loss.type == 'CrossEntropyLoss'
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    layers = {n for n, _ in model.named_parameters() if '.stitching_layers.' in n}
    assert trained == layers
    for anchor, end in zip(
        cfg.model.backbone.anchors, cfg.model.head.anchor_heads, strict=True
    ):
        assert anchor.init_cfg == end.init_cfg
    first = cfg.model.backbone.anchors[0].model
    assert (cfg.model.data_preprocessor.mean[0] == 127.5) == first.startswith('vit')


@pytest.mark.parametrize('pair', GFLOPS)
def test_costs_over_all_gaps(pair):
    (path,) = (p for p in IN1K if pair_of(p) == pair)
    cfg = Config.fromfile(path)
    assert cfg.model.backbone.stages == [(0, 3)]
    cfg.model.backbone.stages = [(0, s) for s in range(4)]
    with torch.device('meta'):
        costs = cost_table(MODELS.build(cfg.model))
    found = [costs[i].flops / 1e9 for i in costs]
    assert found == pytest.approx(GFLOPS[pair], abs=0.0055)
