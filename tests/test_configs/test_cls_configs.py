import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import (
    DATASETS,
    MODELS,
    PARAM_SCHEDULERS,
    init_default_scope,
)
from mmengine.runner import Runner

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table

pytest.importorskip('mmpretrain')

IMAGENET = Path(__file__).parents[2] / 'configs/imagenet'
# Networks with stages have a file of tests of their own.
STAGED = re.compile('swin|resnet|levit')
ALL = sorted(p for p in IMAGENET.rglob('*.py') if not STAGED.search(p.name))
DEIT3 = [p for p in ALL if '_8xb32-50e_' in p.name]
DEIT = [p for p in ALL if '_8xb128-50e_' in p.name]
TINY = [p for p in ALL if p.parent.name == 'tiny']
ALL_KINDS = {'FS', 'FSF', 'SF', 'SFS'}
ROS = 'ResourceConstrainedSampler'
DROP_PATH = {384: 0.05, 768: 0.15, 1024: 0.4}
NUM_IMAGES = 1281167


def name_of(path):
    return path.stem


@cache
def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return cfg, MODELS.build(cfg.model)


def load_in1k(variant, recipe='8xb32-50e'):
    return load(IMAGENET / f'{variant}_{recipe}_in1k-224x224.py')


@cache
def costs_in1k(*args):
    return cost_table(load_in1k(*args)[1])


def anchors_of(model):
    return [m for m in model.modules() if type(m).__name__ == 'PlainViT']


class _RunnerStub:
    """The two things of a runner that building an optimizer reads."""

    def __init__(self, model):
        self.model = model


def test_every_config_belongs_to_a_recipe():
    assert sorted([*DEIT3, *DEIT, *TINY]) == ALL
    assert (len(DEIT3), len(DEIT), len(TINY)) == (9, 4, 8)


def settings_after(cfg, model, steps):
    """The optimizer after some steps of its schedulers."""
    wrapper = Runner.build_optim_wrapper(_RunnerStub(model), cfg.optim_wrapper)
    schedulers = [
        PARAM_SCHEDULERS.build(dict(settings, optimizer=wrapper))
        for settings in cfg.param_scheduler
    ]
    for _ in range(steps):
        for scheduler in schedulers:
            scheduler.step()
    return wrapper.optimizer


def assert_decay(model, optimizer, decay):
    """Matrices decay; vectors, positions and cls tokens do not."""
    names = {p: name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        for p in group['params']:
            name = names[p]
            kept = p.ndim < 2 or name.endswith(('pos_embed', 'cls_token'))
            assert group['weight_decay'] == (0 if kept else decay), name


@pytest.mark.parametrize('path', DEIT3, ids=name_of)
def test_recipe_of_deit3(path):
    cfg, model = load(path)
    optimizer = settings_after(cfg, model, 100)
    assert type(optimizer).__name__ == 'Lamb'
    warm_up = 5 * math.ceil(NUM_IMAGES / 256)
    lr = 1e-6 + (3e-5 - 1e-6) * 100 / (warm_up - 1)
    for group in optimizer.param_groups:
        assert group['lr'] == pytest.approx(lr, rel=1e-6)
        assert group['max_grad_norm'] == 1
    assert_decay(model, optimizer, 0.02)
    assert cfg.train_dataloader.batch_size * 8 == 256
    assert cfg.train_cfg.max_iters == 10 * warm_up == cfg.param_scheduler[-1].end
    for anchor in anchors_of(model):
        rates = [block.drop_path.rate for block in anchor.blocks]
        last = DROP_PATH[anchor.block_dims[0]]
        np.testing.assert_allclose(rates, np.linspace(0, last, anchor.depth), atol=1e-7)
        assert anchor.pos_embed.shape[1] == 196
        assert anchor.blocks[0].ls1.gamma.shape == anchor.block_dims[:1]


@pytest.mark.parametrize('path', DEIT, ids=name_of)
def test_recipe_of_deit(path):
    cfg, model = load(path)
    warm_up = 5 * math.ceil(NUM_IMAGES / 1024)
    optimizer = settings_after(cfg, model, 100)
    assert type(optimizer) is torch.optim.AdamW
    lr = 1e-6 + (1e-4 - 1e-6) * 100 / (warm_up - 1)
    for group in optimizer.param_groups:
        assert group['lr'] == pytest.approx(lr, rel=1e-6)
        assert group['betas'] == (0.9, 0.999)
    assert_decay(model, optimizer, 0.05)
    assert cfg.train_dataloader.batch_size * 8 == 1024
    assert cfg.train_cfg.max_iters == 10 * warm_up == cfg.param_scheduler[-1].end
    for anchor in anchors_of(model):
        assert anchor.blocks[-1].drop_path.rate == pytest.approx(0.1)
        assert anchor.pos_embed.shape[1] == 197


@pytest.mark.parametrize('path', [*DEIT3, *DEIT], ids=name_of)
def test_mixing_and_loss_on_imagenet(path):
    cfg, model = load(path)
    mix = {
        type(a).__name__: a.alpha
        for a in model.data_preprocessor.batch_augments.augments
    }
    assert mix == dict(Mixup=0.8, CutMix=1.0)
    assert model.head.loss_module.label_smooth_val == 0.1
    # Built lazily, so that every transform is looked up but no file is.
    for loader in (cfg.train_dataloader, cfg.test_dataloader):
        dataset = DATASETS.build(dict(loader.dataset, lazy_init=True))
        assert len(dataset.metainfo['classes']) == 1000
    assert cfg.train_dataloader.dataset.split == 'train'
    assert cfg.test_dataloader.dataset.split == 'val'


@pytest.mark.parametrize(
    'variant, kinds, layer, sampler, sizes',
    [
        ('snnetv1-deit3-s-l', {'FS'}, None, 'UniformSampler', None),
        ('snnetv2-deit3-s-l-tws', ALL_KINDS, None, 'UniformSampler', None),
        ('snnetv2-deit3-s-l-tws-ros', ALL_KINDS, None, ROS, [1, *[12] * 11, 1]),
        ('snnetv2-deit3-s-l', ALL_KINDS, 16, ROS, [1, *[12] * 11, 1]),
        ('snnetv2-deit3-s-b', ALL_KINDS, 16, ROS, [1, *[12] * 11, 1]),
        ('snnetv2-deit3-b-l', ALL_KINDS, 16, ROS, [1, *[12] * 11, 1]),
    ],
)
def test_rows_of_figures_6_and_11(variant, kinds, layer, sampler, sizes):
    cfg, model = load_in1k(variant)
    space = model.backbone.space
    assert {s.kind for s in space} == kinds | {'anchor'}
    assert len(space.ids) == (13 if kinds == {'FS'} else 134)
    ranks = {getattr(x, 'rank', None) for x in model.backbone.stitching_layers.values()}
    assert ranks == {layer}
    init = cfg.default_hooks.stitch_init
    sampling = cfg.default_hooks.stitch_sampling
    assert init == dict(type='StitchInitHook', num_images=100)
    assert sampling.sampler.type == sampler
    if sizes:
        costs = costs_in1k(variant)
        groups = ResourceConstrainedSampler(costs, step=sampling.sampler.step).groups
        assert sampling.sampler.step == 1e9
        assert [len(g) for g in groups] == sizes


def test_published_costs_of_deit3(published_cls):
    table = costs_in1k('snnetv2-deit3-s-l')
    assert table.input_size == (224, 224)
    assert set(table) == set(published_cls)
    for stitch_id, figures in published_cls.items():
        ratio = table[stitch_id].flops / figures['flops']
        assert ratio == pytest.approx(1, abs=0.01), stitch_id


def test_published_costs_of_deit(published_v1):
    variant = 'snnetv1-deit-ti-s-b', '8xb128-50e'
    assert (
        load_in1k(*variant)[0].default_hooks.stitch_sampling.sampler.type
        == 'UniformSampler'
    )
    table = costs_in1k(*variant)
    assert set(table) == set(published_v1)
    for stitch_id, figures in published_v1.items():
        flops, params = table[stitch_id][:2]
        assert flops == pytest.approx(figures['flops'], rel=0.01), stitch_id
        assert params == pytest.approx(figures['params'], rel=0.01), stitch_id
    # 'A single SN-Net with 118.4M parameters can include all possible stitches.'
    total = sum(p.numel() for p in load_in1k(*variant)[1].parameters())
    assert total / 1e6 == pytest.approx(118.4, abs=0.05)


def test_an_anchor_alone_has_the_parameters_it_has_in_the_stitched_model():
    for stitch_id, size in enumerate('sl'):
        _, alone = load_in1k(f'deit3-{size}')
        params = sum(p.numel() for p in alone.parameters())
        assert params == costs_in1k('snnetv2-deit3-s-l')[stitch_id].params
