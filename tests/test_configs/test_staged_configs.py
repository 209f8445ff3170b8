"""Configs of networks with stages: what they build, their rates, and a step of each."""

import json
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner
from PIL import Image

from snnet_mm.evaluation import cost_table
from snnet_mm.models import set_stitch

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
SIDE = 64


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


def random_image(path, size=(80, 112), kind=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    high, shape = (6, size) if kind == 'labels' else (255, (*size, 3))
    pixels = np.random.default_rng(0).integers(0, high, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    """Two images in each folder that any of the data sets reads."""
    root = tmp_path_factory.mktemp('data')
    for i in range(2):
        for folder in ('train/a', 'train/b', 'val/a', 'val/b'):
            random_image(root / folder / f'{i}.jpg')
        for split in ('train', 'val', 'training', 'validation'):
            random_image(root / 'images' / split / f'{i}.jpg')
            random_image(root / 'annotations' / split / f'{i}.png', kind='labels')
    images = [dict(id=0, file_name='0.jpg', height=80, width=112)]
    box = [10, 10, 60, 50]
    polygon = [10, 10, 70, 10, 70, 60, 10, 60]
    annotation = dict(id=1, image_id=0, category_id=1, bbox=box, area=3000, iscrowd=0)
    annotation['segmentation'] = [polygon]
    gone = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}
    names = DATASETS.get('mmdet.CocoDataset').METAINFO['classes']
    numbers = [i for i in range(1, 91) if i not in gone]
    categories = [dict(id=i, name=name) for i, name in zip(numbers, names, strict=True)]
    for split in ('train', 'val'):
        random_image(root / f'{split}2017' / '0.jpg')
        written = dict(images=images, annotations=[annotation], categories=categories)
        path = root / f'annotations/instances_{split}2017.json'
        path.write_text(json.dumps(written))
    return root


def narrow_anchor(anchor):
    """A few channels and blocks; its widths and the last blocks of its stages."""
    anchor.img_size = SIDE
    anchor.pop('init_cfg', None)
    if 'swin' in anchor.model:
        depths = (2, 2, 3, 2) if 'tiny' in anchor.model else (2, 2, 4, 2)
        args = anchor.get('model_args', {})
        if len(args.get('depths', depths)) == 3:
            depths = depths[:3]
        heads = (1, 2, 2, 4)[: len(depths)]
        args = dict(embed_dim=8, depths=depths, num_heads=heads, window_size=2)
        widths = [8 * 2**i for i in range(len(depths))]
    elif 'resnet' in anchor.model:
        args = dict(channels=(4, 6, 8, 10), stem_type='deep', stem_width=2)
        widths = [w * (4 if '50' in anchor.model else 1) for w in args['channels']]
        depths = (3, 4, 6, 3) if '50' in anchor.model else (2, 2, 2, 2)
    else:
        widths, depths = (16, 24, 32), (2, 2, 2)
        args = dict(embed_dim=widths, depth=depths, num_heads=(2,) * 3, key_dim=8)
    anchor.model_args = ConfigDict(args)
    return widths, tuple(np.cumsum(depths) - 1)


def narrow_heads(model, shapes):
    """Heads and necks for anchors of these widths and last blocks."""
    widths, ends = shapes[-1]
    if 'decode_head' in model or 'roi_head' in model:
        model.backbone.out_indices = ends
    if 'anchor_heads' in model.get('head', {}):
        for end, (shape, _) in zip(model.head.anchor_heads, shapes, strict=True):
            end.in_channels = shape[-1]
            end.pop('init_cfg', None)
    necks = model.get('neck', [])
    for neck in necks if isinstance(necks, list) else [necks]:
        neck.in_channels = widths
        neck.pop('init_cfg', None)
        if neck.type == 'FPN':
            neck.out_channels = 8
    if 'decode_head' in model:
        bn = dict(norm_cfg=dict(type='BN'))
        model.decode_head.update(in_channels=widths, channels=8, **bn)
        model.decode_head.pop('init_cfg', None)
        if 'auxiliary_head' in model:
            model.auxiliary_head.update(in_channels=widths[2], channels=8, **bn)
        model.data_preprocessor.size = (SIDE, SIDE)
    if 'roi_head' in model:
        model.rpn_head.update(in_channels=8, feat_channels=8)
        for part in ('bbox', 'mask'):
            model.roi_head[f'{part}_roi_extractor'].out_channels = 8
            model.roi_head[f'{part}_head'].in_channels = 8
        model.roi_head.bbox_head.fc_out_channels = 16
        model.roi_head.mask_head.conv_out_channels = 8
        model.test_cfg.rcnn.update(score_thr=0.0, max_per_img=5)
    if 'head' in model:
        model.head.num_classes = model.data_preprocessor.num_classes = 2


def narrow_transform(transform, classifies):
    """A transform to small images."""
    if 'crop_size' in transform:
        transform.crop_size = SIDE if classifies else (SIDE, SIDE)
    if 'scale' in transform:
        transform.scale = SIDE if classifies else (112, 80)
    if transform.type == 'RandomChoice':
        for several in transform.transforms:
            for inner in several:
                if 'scales' in inner:
                    inner.scales = [(112, 64), (112, 80)]
                if 'crop_size' in inner:
                    inner.crop_size = (48, 64)


def narrow(cfg, data_root, work_dir):
    """A config of any task, for one step of a small model on small images."""
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    model = cfg.model
    anchors = model.backbone.get('anchors', [model.backbone])
    narrow_heads(model, [narrow_anchor(anchor) for anchor in anchors])
    classifies = 'head' in model
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(data_root)
        if classifies:
            loader.dataset.metainfo = dict(classes=('a', 'b'))
        for transform in loader.dataset.pipeline:
            narrow_transform(transform, classifies)
    if classifies:
        cfg.test_evaluator.topk = (1,)
    if 'roi_head' in model:
        cfg.test_evaluator.ann_file = f'{data_root}/annotations/instances_val2017.json'
    if 'stitch_init' in cfg.default_hooks:
        cfg.default_hooks.stitch_init.num_images = 2
    cfg.test_dataloader.batch_size = 1
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg.max_iters = 1
    cfg.param_scheduler = []


STEPS = [
    IN1K.format('resnet18-swin-ti_8xb128-30e'),
    IN1K.format('levit-192-256_8xb128-50e'),
    TINY.format('resnet-slow_1xb64-1000'),
    TINY.format('snnetv1-swin-fast-slow_1xb64-600'),
    'swin/upernet_snnetv1-swin-ti-s_8xb2-160k_ade20k-512x512.py',
    pytest.param(
        'swin/mask-rcnn_snnetv1-swin-ti-s_8xb2-3x_coco.py', marks=pytest.mark.ops
    ),
]


@pytest.mark.parametrize('name', STEPS)
def test_config_trains_and_tests(name, data_root, tmp_path, monkeypatch):
    # mmengine formats a config six times, which takes longer than all the rest.
    monkeypatch.setattr(Config, 'pretty_text', '')
    cfg = Config.fromfile(CONFIGS / name)
    narrow(cfg, data_root, tmp_path)
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.named_parameters()}
    runner.train()
    after = dict(runner.model.named_parameters())
    moved = {k for k, v in after.items() if not v.equal(before[k])}
    assert all(p.isfinite().all() for p in after.values())
    assert any(k.startswith('backbone.') and 'blocks.' in k for k in moved)
    assert any('head' in k for k in moved)
    metrics = runner.test()
    metric, most = {
        'head': ('accuracy/top1', 100),
        'decode_head': ('mIoU', 100),
        'roi_head': ('coco/segm_mAP', 1),
    }[next(k for k in ('decode_head', 'roi_head', 'head') if k in cfg.model)]
    prefixes = ('stitch_0/', 'stitch_1/') if 'snnet' in name else ('',)
    assert all(0 <= metrics[f'{prefix}{metric}'] <= most for prefix in prefixes)


def test_camvid_from_anchors_to_stitches(data_root, tmp_path, monkeypatch):
    monkeypatch.setattr(Config, 'pretty_text', '')
    models = {}
    for name in ('swin-fast', 'swin-slow', 'snnetv1-swin-fast-slow'):
        cfg = Config.fromfile(CONFIGS / CAMVID.format(name))
        start = cfg.model.backbone.get('anchors', [])
        inits = [(a.init_cfg.prefix, a.init_cfg.checkpoint) for a in start]
        narrow(cfg, data_root, tmp_path / name)
        if start:
            assert [path.split('/')[1].split('_')[1] for _, path in inits] == [*models]
            for anchor, (prefix, _), source in zip(start, inits, models, strict=True):
                path = str(tmp_path / source / 'iter_1.pth')
                anchor.init_cfg = dict(
                    type='Pretrained', checkpoint=path, prefix=prefix
                )
            for part in ('neck', 'decode_head'):
                cfg.model[part].init_cfg = dict(
                    type='Pretrained', checkpoint=path, prefix=f'{part}.'
                )
            cfg.optim_wrapper.optimizer.lr = 0.0
        runner = Runner.from_cfg(cfg)
        runner.train()
        models[name] = runner.model
    fast, slow, stitched = models.values()
    for anchor, alone in zip(stitched.backbone.anchors, (fast, slow), strict=True):
        wanted = dict(alone.backbone.named_parameters())
        assert all(p.equal(wanted[k]) for k, p in anchor.named_parameters())
    for part in ('neck', 'decode_head'):
        wanted = dict(getattr(slow, part).named_parameters())
        found = dict(getattr(stitched, part).named_parameters())
        assert all(p.equal(wanted[k]) for k, p in found.items())
    images = torch.randn(1, 3, SIDE, SIDE)
    set_stitch(stitched, 1)
    stitched.eval().decode_head.load_state_dict(slow.eval().decode_head.state_dict())
    with torch.no_grad():
        assert stitched(images).equal(slow(images))
