"""Configs of adapters across large gaps: networks, recipe, costs and steps."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from PIL import Image

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


def test_tiny_rows():
    kinds = {}
    for path in TINY:
        cfg = Config.fromfile(path)
        fast, slow, kind = pair_of(path).split('-', 2)
        kinds.setdefault((fast, slow), []).append(kind)
        layer = cfg.model.backbone.stitching_layer
        name = kind.replace('-', '').removesuffix('strided') + 'adapter'
        assert layer.type.lower() == name
        assert layer.get('resize') == ('strided' if 'strided' in kind else None)
        # The tiny Swin has three stages, the ViT no block behind the fourth.
        targets = range(4 if slow == 'resnet' else 3)
        assert cfg.model.backbone.stages == [(0, s) for s in targets]
        assert cfg.train_cfg.max_iters == cfg.param_scheduler[0].end == 300
    six = [
        'bottleneck',
        'bottleneck-strided',
        'conv3x3',
        'conv3x3-strided',
        'linear',
        'linear-relu',
    ]
    assert sorted(kinds['resnet', 'resnet']) == six
    assert sorted(kinds['resnet', 'swin']) == six
    assert sorted(kinds['vit', 'vit']) == ['bottleneck', 'linear', 'vit-block']


@pytest.fixture(scope='module')
def data_root(tmp_path_factory):
    root = tmp_path_factory.mktemp('images')
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for name in ('a', 'b'):
            for i in range(2):
                path = root / split / name / f'{i}.jpg'
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = rng.integers(0, 255, (80, 72, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(path)
    return root


def narrow_anchor(anchor):
    """A few channels at 64 pixels; its last width."""
    anchor.img_size = 64
    anchor.pop('init_cfg')
    if anchor.type == 'PlainViT':
        return anchor.arch.embed_dims
    if 'vit' in anchor.model:
        anchor.model_args = dict(embed_dim=64, num_heads=2)
        return 64
    if 'resnet' in anchor.model:
        args = dict(channels=(4, 6, 8, 10), stem_type='deep', stem_width=2)
        anchor.model_args = args
        return 40
    if 'swin' in anchor.model:
        depths = anchor.get('model_args', {}).get('depths', (2, 2, 6, 2))
        args = dict(embed_dim=8, depths=depths, num_heads=(1, 2, 2, 4)[: len(depths)])
        anchor.model_args = dict(args, window_size=2)
        return 8 * 2 ** (len(depths) - 1)
    anchor.model = 'mobilenetv3_small_050'
    return 288


def narrow(cfg, data_root, work_dir):
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    model = cfg.model
    for anchor, end in zip(
        model.backbone.anchors, model.head.anchor_heads, strict=True
    ):
        end.in_channels = narrow_anchor(anchor)
        end.pop('init_cfg')
    model.head.num_classes = model.data_preprocessor.num_classes = 2
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(data_root)
        if loader.dataset.get('of', loader.dataset.type) == 'ImageNet':
            loader.dataset.pop('split')
        loader.dataset.metainfo = dict(classes=('a', 'b'))
        for transform in loader.dataset.pipeline:
            if 'crop_size' in transform:
                transform.crop_size = 64
            if transform.get('scale') in (224, 256):
                transform.scale = 64
    cfg.test_evaluator.topk = (1,)
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.train_cfg.max_iters = 1
    cfg.param_scheduler = []


# Every network on both sides; the others are slow tests.
QUICK = (
    'mobilenetv3-l-mobilenetv3-l',
    'resnet50-swin-t',
    'swin-t-vit-s',
    'vit-s-resnet50',
    'resnet-swin-conv3x3-strided',
    'vit-vit-vit-block',
)
STEPS = [
    pytest.param(p, marks=[] if pair_of(p) in QUICK else pytest.mark.slow)
    for p in IN1K + TINY
]


@pytest.mark.parametrize('path', STEPS, ids=[p.stem for p in IN1K + TINY])
def test_a_step_trains_adapters_and_the_test_gives_all(
    path, data_root, tmp_path, monkeypatch
):
    # mmengine formats a config six times, which takes longer than all the rest.
    monkeypatch.setattr(Config, 'pretty_text', '')
    cfg = Config.fromfile(path)
    narrow(cfg, data_root, tmp_path)
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    runner.train()
    after = runner.model.state_dict()
    moved = {k for k, v in after.items() if not v.equal(before[k])}
    assert all(k.startswith('backbone.stitching_layers.') for k in moved)
    assert all(v.isfinite().all() for v in after.values())
    active = runner.model.backbone.active_stitch
    trained = [
        k
        for k in dict(runner.model.named_parameters())
        if k.startswith(f'backbone.stitching_layers.{active.layers[0]}.')
    ]
    assert set(trained) <= moved
    metrics = runner.test()
    ids = runner.model.backbone.space.ids
    found = [metrics[f'stitch_{i}/accuracy/top1'] for i in ids]
    assert all(value in (0, 25, 50, 75, 100) for value in found)
