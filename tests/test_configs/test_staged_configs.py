"""Configs of networks with stages and of adapters: stitches, costs and rates."""

import math

import pytest
from config_models import (
    build_on_meta,
    load,
    num_parameters,
    optimizer_after,
    paths,
    read,
)

from snnet_mm.evaluation import cost_table

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

STITCHED = [
    name
    for family in ('swin', 'resnet', 'levit')
    for name in paths(f'**/*snnetv1-{family}*.py')
]
IN1K = 'imagenet/snnetv1-{}_in1k-224x224.py'
TINY = 'imagenet/tiny/snnetv1-{}-fast-slow_1xb64-600_tinyimagenet20-64x64.py'
CAMVID = 'swin/camvid/upernet_snnetv1-swin-fast-slow_1xb8-1000_camvid-240x176.py'
ADE20K = 'swin/upernet_{}_8xb2-160k_ade20k-512x512.py'
COCO = 'swin/mask-rcnn_{}_8xb2-3x_coco.py'
BRIDGED = paths('bridging/*.py')
# GFLOPs of both networks, and over gaps from the first stage to each.
GFLOPS = {
    'resnet50-resnet50': (4.09, 4.09, 3.87, 3.58, 2.84, 1.67),
    'resnet50-swin-t': (4.09, 4.49, 4.19, 4.09, 3.45, 1.57),
    'vit-s-vit-s': (4.60, 4.60, 4.22, 3.84, 3.09, 2.33),
}


@pytest.mark.parametrize(
    'name, stages, numbers, gflops',
    [
        # test_staged_backbone.py compares the costs of the first four.
        (IN1K.format('swin-ti-s-b_8xb128-50e'), (0, 1, 2), (3, 38), None),
        (IN1K.format('resnet18-50_8xb128-30e'), (1, 2), (2, 8), None),
        (IN1K.format('resnet18-swin-ti_8xb128-30e'), (1, 2), (2, 6), None),
        (IN1K.format('levit-192-256_8xb128-100e'), (0, 1), (2, 6), None),
        (TINY.format('swin'), (0, 1, 2), (2, 7), (0.01219, 0.04291)),
        (TINY.format('resnet'), (1, 2), (2, 8), (0.01064, 0.02225)),
        (CAMVID, (0, 1, 2), (2, 7), (0.3329, 0.7187)),
        (ADE20K.format('snnetv1-swin-ti-s'), (0, 1, 2), (2, 19), (237.47, 260.58)),
        (COCO.format('snnetv1-swin-ti-s'), (0, 1, 2), (2, 19), None),
    ],
)
def test_stitches_and_costs(name, stages, numbers, gflops):
    cfg, model = load(name)
    space = model.backbone.space
    assert space.stages == stages
    anchors = len(space.anchor_ids)
    assert (anchors, len(space) - anchors) == numbers
    if gflops:
        costs = cost_table(model, cfg.test_cfg.get('input_size'))
        found = [costs[i].flops / 1e9 for i in space.anchor_ids]
        assert found == pytest.approx(gflops, rel=5e-3)


@pytest.mark.parametrize('name', STITCHED)
def test_anchors_have_a_tenth_of_the_rate_of_stitching_layers_but_in_levit(name):
    cfg, model = load(name)
    names = {p: n for n, p in model.named_parameters()}
    rates, levit = {}, 'levit' in name
    for group in optimizer_after(cfg, model, 0).param_groups:
        for p in group['params']:
            part = names[p].split('.')[1 if names[p].startswith('backbone') else 0]
            rates.setdefault(part, set()).add(round(group['initial_lr'], 10))
            decays = p.ndim > 1 and 'relative' not in names[p]
            decays &= levit or 'attention_biases' not in names[p]
            assert (group['weight_decay'] > 0) == decays, names[p]
    (anchors,), (layers,) = rates.pop('anchors'), rates.pop('stitching_layers')
    assert layers == pytest.approx(anchors if levit else 10 * anchors)
    if 'head' in rates:
        # The classifiers are the anchors' own; dense heads have the recipe's rate.
        assert rates == dict(head={anchors})
        assert layers == (0.05 if '30e' in name else 1e-4 if levit else 1e-3)
        widths = [a.block_dims[-1] for a in model.backbone.anchors]
        assert [h.in_channels for h in model.head.anchor_heads] == widths
        if 'in1k' in name:
            epochs = 30 if '30e' in name else 100 if levit else 50
            assert cfg.train_dataloader.batch_size * 8 == 1024
            assert cfg.train_cfg.max_iters == epochs * math.ceil(1281167 / 1024)
    elif 'camvid' in name:
        assert set.union(*rates.values()) == {layers} == {1e-3}
    else:
        assert set.union(*rates.values()) == {anchors}
        assert anchors == (6e-5 if 'ade20k' in name else 1e-4)


@pytest.mark.parametrize('teacher', ['', '-no-teacher'])
def test_recipes_of_families_are_those_of_the_authors(teacher):
    swin = read(IN1K.format(f'swin-ti-s-b{teacher}_8xb128-50e')).model
    anchors = swin.get('model', swin).backbone.anchors
    assert [a.drop_path_rate for a in anchors] == [0.2] * 3
    levit = read(IN1K.format(f'levit-192-256{teacher}_8xb128-100e'))
    assert levit.optim_wrapper.optimizer.weight_decay == 0.025
    clip = dict(type='AdaptiveGradClipHook', clip_factor=0.01)
    assert levit.default_hooks.grad_clip == clip
    cfg = read(IN1K.format(f'resnet18-50{teacher}_8xb128-30e'))
    kinds = {t.type: t for t in cfg.train_dataloader.dataset.pipeline}
    assert kinds['RandomErasing'].erase_prob == 0.3  # 0.6 in every other half batch
    assert kinds['RandAugment'].magnitude_level == 9
    model = cfg.model.get('model', cfg.model)
    assert 'train_cfg' not in model  # no mixing
    weights = [a.init_cfg.checkpoint for a in model.backbone.anchors]
    assert weights == ['timm://resnet18.tv_in1k', 'timm://resnet50.a1_in1k']


@pytest.mark.parametrize(
    'name, millions',
    [
        # mmsegmentation's and mmdetection's models have as many.
        (ADE20K.format('swin-ti'), 59.94),
        (ADE20K.format('swin-s'), 81.26),
        (COCO.format('swin-ti'), 47.79),
        (COCO.format('swin-s'), 69.11),
    ],
)
def test_dense_models_are_those_of_openmmlab(name, millions):
    cfg, model = load(name)
    assert num_parameters(model) / 1e6 == pytest.approx(millions, abs=0.005)
    end = max(s.end for s in cfg.param_scheduler)
    assert end == cfg.train_cfg.max_iters
    # 36 epochs of the 117266 images with objects, batches of 16.
    epochs = 36 * math.ceil(117266 / 16)
    assert end == (160000 if 'ade20k' in name else epochs)


@pytest.mark.parametrize('name', BRIDGED)
def test_recipe_of_adapters(name):
    cfg, model = load(name)
    # 10 epochs of 1281167 images in batches of 512.
    assert cfg.param_scheduler[0].end == cfg.train_cfg.max_iters == 10 * 2503
    assert cfg.train_dataloader.batch_size * 8 == 512
    for n, p in model.named_parameters():
        assert p.requires_grad == ('.stitching_layers.' in n)
    anchors, heads = cfg.model.backbone.anchors, cfg.model.head.anchor_heads
    assert [a.init_cfg for a in anchors] == [h.init_cfg for h in heads]
    vit = anchors[0].model.startswith('vit')
    assert (cfg.model.data_preprocessor.mean[0] == 127.5) == vit


@pytest.mark.parametrize('pair', GFLOPS)
def test_costs_of_adapters_over_all_gaps(pair):
    (name,) = (n for n in BRIDGED if f'/bridge-{pair}_' in n)
    cfg = read(name)
    assert cfg.model.backbone.stages == [(0, 3)]
    cfg.model.backbone.stages = [(0, s) for s in range(4)]
    costs = cost_table(build_on_meta(cfg))
    found = [costs[i].flops / 1e9 for i in costs]
    assert found == pytest.approx(GFLOPS[pair], abs=0.0055)
