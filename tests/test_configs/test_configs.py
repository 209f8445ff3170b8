import math
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import PARAM_SCHEDULERS, init_default_scope
from mmengine.runner import Runner
from mmseg.registry import MODELS
from PIL import Image

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone

CONFIGS = Path(__file__).parents[2] / 'configs'
ALL = sorted(p for p in CONFIGS.rglob('*.py') if '_base_' not in p.parts)
ALL_KINDS = ['FS', 'FSF', 'SF', 'SFS']
ROS = 'ResourceConstrainedSampler'
CAMVID = 'camvid/setr-naive_{}_1xb8-1500_camvid-240x176.py'


def name_of(path):
    return str(path.relative_to(CONFIGS))


def build_on_meta(cfg):
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


def test_stitched_models_have_the_groups_meant():
    for name, sizes in (
        (
            'dpt/dpt_snnetv2-deit3-s-l_4xb4-24e_nyu-416x544.py',
            [1, *[12] * 11, 1],
        ),
        (
            'dpt/hololens/dpt_snnetv2-fast-slow_1xb8-200_hololens-240x160.py',
            [1, 6, 6, 6, 6, 6, 1],
        ),
        (CAMVID.format('snnetv2-fast-slow'), [1, 6, 6, 6, 6, 6, 1]),
        (
            'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py',
            [1, *[12] * 11, 1],
        ),
        (
            'setr/dinov2/linear_snnetv2-dinov2-b-l_8xb2-80k_ade20k-518x518.py',
            [1, *[12] * 11, 1],
        ),
    ):
        cfg = Config.fromfile(CONFIGS / name)
        costs = cost_table(build_on_meta(cfg))
        sampler = cfg.default_hooks.stitch_sampling.sampler
        groups = ResourceConstrainedSampler(costs, step=sampler.step).groups
        assert [len(g) for g in groups] == sizes


@pytest.mark.parametrize('path', sorted(CONFIGS.glob('setr/*.py')), ids=name_of)
def test_setr_configs_run_what_the_authors_ran(path):
    cfg = Config.fromfile(path)
    model = build_on_meta(cfg)
    iterations, classes = (160000, 150) if 'ade20k' in path.name else (80000, 171)
    optimizer = Runner.build_optim_wrapper(
        _RunnerStub(model), cfg.optim_wrapper
    ).optimizer
    assert type(optimizer) is torch.optim.SGD
    names = {p: name for name, p in model.named_parameters()}
    mmseg_lr = 'mmseg-lr' in path.name
    for group in optimizer.param_groups:
        heads = {'head' in names[p] for p in group['params']}
        lr = 0.1 if mmseg_lr and heads == {True} else 0.01
        assert group['lr'] == pytest.approx(lr)
        assert group['momentum'] == 0.9
        assert group['weight_decay'] == (0 if mmseg_lr else 5e-4)
    (schedule,) = cfg.param_scheduler
    assert (schedule.type, schedule.eta_min) == ('PolyLR', 1e-4)
    assert schedule.end == cfg.train_cfg.max_iters == iterations
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.model.test_cfg == dict(
        mode='slide', crop_size=(512, 512), stride=(341, 341)
    )
    heads = list(model.auxiliary_head)
    assert [h.in_index for h in heads] == [0, 1, 2]
    assert [len(h.up_convs) for h in heads] == [2, 2, 2]
    assert {h.num_classes for h in (*heads, model.decode_head)} == {classes}
    anchors = [m for m in model.modules() if type(m).__name__ == 'PlainViT']
    for anchor in anchors:
        rates = [block.drop_path.rate for block in anchor.blocks]
        np.testing.assert_allclose(rates, np.linspace(0, 0.1, anchor.depth), atol=1e-7)


@pytest.mark.parametrize(
    'variant, kinds, layer, rank, sampler',
    [
        ('snnetv1-deit3-s-l', ['FS'], 'StitchingLayer', None, 'UniformSampler'),
        ('snnetv2-deit3-s-l-tws', ALL_KINDS, 'StitchingLayer', None, 'UniformSampler'),
        ('snnetv2-deit3-s-l-tws-ros', ALL_KINDS, 'StitchingLayer', None, ROS),
        ('snnetv2-deit3-s-l', ALL_KINDS, 'LoRAStitchingLayer', 16, ROS),
        ('snnetv2-deit3-b-l', ALL_KINDS, 'LoRAStitchingLayer', 4, ROS),
    ],
)
def test_rows_of_table_2_and_ranks(variant, kinds, layer, rank, sampler):
    cfg = Config.fromfile(
        CONFIGS / f'setr/setr-naive_{variant}_8xb2-160k_ade20k-512x512.py'
    )
    backbone = build_on_meta(cfg).backbone
    assert sorted({s.kind for s in backbone.space} - {'anchor'}) == sorted(kinds)
    layers = set(map(type, backbone.stitching_layers.values()))
    assert {t.__name__ for t in layers} == {layer}
    assert getattr(backbone.stitching_layers['0to1_0'], 'rank', None) == rank
    assert cfg.default_hooks.stitch_sampling.sampler.type == sampler
    assert backbone.out_indices == (9, 14, 19, 23)


@pytest.mark.parametrize('pair, millions', [('s', 338.99), ('b', 412.43)])
def test_parameters_with_the_authors_position_bias(pair, millions):
    cfg = Config.fromfile(
        CONFIGS / f'setr/setr-naive_snnetv2-deit3-{pair}-l_8xb2-160k_ade20k-512x512.py'
    )
    for anchor in cfg.model.backbone.anchors:
        anchor.rel_pos_bias = True
    model = build_on_meta(cfg)
    auxiliary = sum(p.numel() for p in model.auxiliary_head.parameters())
    total = sum(p.numel() for p in model.parameters())
    assert total / 1e6 == pytest.approx(millions, abs=0.005)
    assert (total - auxiliary) / 1e6 == pytest.approx(millions - 1.11, abs=0.01)


DPT = CONFIGS / 'dpt'
NYU = sorted(DPT.glob('*.py'))


def at_step(n, first, peak, num_steps=36360):
    """A value of the one-cycle policy that many steps into its rising part."""
    return peak + (first - peak) / 2 * (
        1 + math.cos(math.pi * n / (0.3 * num_steps - 1))
    )


@pytest.mark.parametrize('path', NYU, ids=name_of)
def test_nyu_configs_run_what_the_authors_ran(path):
    cfg = Config.fromfile(path)
    model = build_on_meta(cfg)
    wrapper = Runner.build_optim_wrapper(_RunnerStub(model), cfg.optim_wrapper)
    schedulers = [
        PARAM_SCHEDULERS.build(dict(settings, optimizer=wrapper))
        for settings in cfg.param_scheduler
    ]
    for _ in range(100):
        for scheduler in schedulers:
            scheduler.step()
    optimizer = wrapper.optimizer
    assert type(optimizer) is torch.optim.AdamW
    names = {p: name for name, p in model.named_parameters()}
    in_groups = [names[p] for group in optimizer.param_groups for p in group['params']]
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    if 'paramwise_cfg' not in cfg.optim_wrapper:
        trained = list(names.values())
    assert sorted(in_groups) == sorted(trained)
    for group in optimizer.param_groups:
        rate = 2e-5
        if 'backbone-lr0.1' in path.name:
            (in_backbone,) = {names[p].startswith('backbone.') for p in group['params']}
            rate *= 0.1 if in_backbone else 1
        assert group['lr'] == pytest.approx(at_step(100, rate / 25, rate), rel=1e-9)
        assert group['weight_decay'] == pytest.approx(0.01)
        assert group['betas'] == (pytest.approx(at_step(100, 0.95, 0.85)), 0.999)
    assert cfg.optim_wrapper.clip_grad == dict(max_norm=35, norm_type=2)
    # 24 epochs of the 24231 training images, four GPUs.
    assert cfg.train_dataloader.batch_size == 4
    assert cfg.train_cfg.max_iters == 24 * math.ceil(24231 / 16)
    assert {s.end for s in cfg.param_scheduler} == {cfg.train_cfg.max_iters}
    last_rate = 2e-5 / 25 / 100
    assert schedulers[0]._levels(2e-5)[2] == pytest.approx(last_rate)


@pytest.mark.parametrize('path', NYU, ids=name_of)
def test_nyu_models_are_those_of_the_authors(path):
    cfg = Config.fromfile(path)
    model = build_on_meta(cfg)
    backbone, head = model.backbone, model.decode_head
    small = path.name.startswith(('dpt_deit3-s', 'dpt_deit3-b'))
    assert backbone.out_indices == ((2, 5, 8, 11) if small else (4, 11, 17, 23))
    assert [c.conv.in_channels for c in head.convs] == [96, 192, 384, 768]
    assert head.reassemble_blocks.readout_type == 'project'
    assert not any('norm' in type(m).__name__.lower() for m in head.modules())
    assert (head.min_depth, head.max_depth) == (1e-3, 10)
    assert head.loss_decode.warm_up_iters == 100
    preprocessor = cfg.model.data_preprocessor
    assert preprocessor['mean'] == preprocessor['std'] == [127.5] * 3
    transforms = {t.type: t for t in cfg.train_dataloader.dataset.pipeline}
    assert transforms['RandomCrop'].crop_size == (416, 544)
    assert transforms['RandomRotate'].degree == 2.5
    assert transforms['RandomRotate'].seg_pad_val == 0
    assert model.data_preprocessor.seg_pad_val == 0
    assert model.test_cfg == dict(mode='whole', flip=True)
    assert cfg.test_evaluator.crop == 'eigen'


@pytest.mark.parametrize(
    'variant, kinds, layer, rank',
    [
        ('snnetv1-deit3-s-l', ['FS'], 'StitchingLayer', None),
        ('snnetv2-deit3-s-l', ALL_KINDS, 'LoRAStitchingLayer', 4),
        ('snnetv2-deit3-s-l-r16', ALL_KINDS, 'LoRAStitchingLayer', 16),
        ('snnetv2-deit3-b-l', ALL_KINDS, 'LoRAStitchingLayer', 4),
    ],
)
def test_stitches_of_the_nyu_configs(variant, kinds, layer, rank):
    cfg = Config.fromfile(DPT / f'dpt_{variant}_4xb4-24e_nyu-416x544.py')
    backbone = build_on_meta(cfg).backbone
    assert sorted({s.kind for s in backbone.space} - {'anchor'}) == sorted(kinds)
    layers = {type(m).__name__ for m in backbone.stitching_layers.values()}
    assert layers == {layer}
    assert getattr(backbone.stitching_layers['0to1_0'], 'rank', None) == rank
    assert cfg.test_cfg.input_size == (480, 640)


@pytest.mark.parametrize('variant', ['', '-r16'])
def test_published_costs_on_nyu(published_depth, variant):
    path = DPT / f'dpt_snnetv2-deit3-s-l{variant}_4xb4-24e_nyu-416x544.py'
    cfg = Config.fromfile(path)
    table = cost_table(build_on_meta(cfg), cfg.test_cfg.input_size)
    assert set(table) == set(published_depth)
    # fvcore counts norms and upsampling too: 0.3 to 0.6 GFLOPs.
    for stitch_id, flops in published_depth.items():
        assert 0.996 < table[stitch_id].flops / flops < 1, stitch_id


class _RunnerStub:
    """The two things of a runner that building an optimizer reads."""

    def __init__(self, model):
        self.model = model


@pytest.fixture
def camvid(tmp_path):
    """Four images in the layout of CamVid."""
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'annotations'):
            (tmp_path / kind / split).mkdir(parents=True)
        for i in range(2):
            image = rng.integers(0, 255, (360, 480, 3), dtype=np.uint8)
            labels = rng.integers(0, 11, (360, 480), dtype=np.uint8)
            Image.fromarray(image).save(tmp_path / 'images' / split / f'{i}.jpg')
            Image.fromarray(labels).save(tmp_path / 'annotations' / split / f'{i}.png')
    return tmp_path


def train_camvid(name, data_root, work_dir, **options):
    cfg = Config.fromfile(CONFIGS / CAMVID.format(name))
    cfg.work_dir, cfg.log_level = str(work_dir / name), 'ERROR'
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(data_root)
    cfg.train_dataloader.batch_size = 2
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.merge_from_dict(options)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


def test_camvid_from_anchors_to_stitches(camvid, tmp_path):
    anchors = {
        name: train_camvid(f'vit-{name}', camvid, tmp_path) for name in ('fast', 'slow')
    }
    checkpoints = {
        name: str(tmp_path / f'vit-{name}' / 'iter_1.pth') for name in anchors
    }
    options = {
        'model.backbone.anchors.0.init_cfg.checkpoint': checkpoints['fast'],
        'model.backbone.anchors.1.init_cfg.checkpoint': checkpoints['slow'],
        'model.decode_head.init_cfg.checkpoint': checkpoints['slow'],
        # A learning rate of nothing leaves the weights as they were loaded.
        'optim_wrapper.optimizer.lr': 0.0,
    }
    runner = train_camvid('snnetv2-fast-slow', camvid, tmp_path, **options)
    backbone = find_stitched_backbone(runner.model)
    for anchor, trained in zip(backbone.anchors, anchors.values(), strict=True):
        for key, value in trained.model.backbone.state_dict().items():
            assert torch.equal(anchor.state_dict()[key], value), key
    head = anchors['slow'].model.decode_head.state_dict()
    for key, value in runner.model.decode_head.named_parameters():
        assert torch.equal(value, head[key]), key
    metrics = runner.val_loop.run()
    # Stitch 1 is the slow anchor with the slow anchor's head; only the batch norm
    # statistics have seen one batch more.
    assert set(metrics) == {
        f'stitch_{i}/{m}' for i in (0, 1) for m in ('aAcc', 'mIoU', 'mAcc')
    }
