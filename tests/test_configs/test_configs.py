"""Configs of segmentation and depth: recipes, models and costs of the authors."""

import math

import numpy as np
import pytest
import torch
from config_models import (
    GROUPS_OF_134,
    build_on_meta,
    load,
    num_parameters,
    optimizer_after,
    paths,
    read,
)

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table

pytest.importorskip('mmseg')

CAMVID = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
NYU = 'dpt/dpt_{}_4xb4-24e_nyu-416x544.py'
DINOV2 = 'setr/dinov2/linear_snnetv2-dinov2-b-l_8xb2-80k_ade20k-518x518.py'
GROUPS_OF_38 = [1, *[6] * 5, 1]


@pytest.mark.parametrize('name', paths('setr/*.py'))
def test_setr_configs_run_what_the_authors_ran(name):
    cfg, model = load(name)
    iterations, classes = (160000, 150) if 'ade20k' in name else (80000, 171)
    optimizer = optimizer_after(cfg, model, 0)
    assert type(optimizer) is torch.optim.SGD
    names = {p: name for name, p in model.named_parameters()}
    mmseg_lr = 'mmseg-lr' in name
    for group in optimizer.param_groups:
        heads = {'head' in names[p] for p in group['params']}
        lr = 0.1 if mmseg_lr and heads == {True} else 0.01
        assert group['lr'] == pytest.approx(lr)
        assert group['weight_decay'] == (0 if mmseg_lr else 5e-4)
    assert cfg.param_scheduler[0].end == cfg.train_cfg.max_iters == iterations
    heads = [*model.auxiliary_head, model.decode_head]
    assert [h.in_index for h in heads] == [0, 1, 2, 3]
    assert [len(h.up_convs) for h in heads] == [2, 2, 2, 1]
    assert {h.num_classes for h in heads} == {classes}
    for anchor in (m for m in model.modules() if type(m).__name__ == 'PlainViT'):
        rates = [block.drop_path.rate for block in anchor.blocks]
        np.testing.assert_allclose(rates, np.linspace(0, 0.1, anchor.depth), atol=1e-7)


@pytest.mark.parametrize(
    'name, sizes, rank',
    [
        (SETR.format('snnetv1-deit3-s-l'), None, None),
        (SETR.format('snnetv2-deit3-s-l-tws-ros'), GROUPS_OF_134, None),
        (SETR.format('snnetv2-deit3-s-l'), GROUPS_OF_134, 16),
        (SETR.format('snnetv2-deit3-b-l'), None, 4),
        (NYU.format('snnetv1-deit3-s-l'), None, None),
        (NYU.format('snnetv2-deit3-s-l'), GROUPS_OF_134, 4),
        (NYU.format('snnetv2-deit3-s-l-r16'), None, 16),
        (NYU.format('snnetv2-deit3-b-l'), None, 4),
        (DINOV2, GROUPS_OF_134, 16),
        (CAMVID, GROUPS_OF_38, 16),
    ],
)
def test_stitches_groups_and_ranks_of_the_authors(name, sizes, rank):
    cfg, model = load(name)
    backbone = model.backbone
    assert len(backbone.space.ids) == (13 if 'v1' in name else sum(sizes or [134]))
    ranks = {getattr(x, 'rank', None) for x in backbone.stitching_layers.values()}
    assert ranks == {rank}
    if sizes:
        step = cfg.default_hooks.stitch_sampling.sampler.step
        groups = ResourceConstrainedSampler(cost_table(model), step=step).groups
        assert [len(g) for g in groups] == sizes


@pytest.mark.parametrize('pair, millions', [('s', 338.99), ('b', 412.43)])
def test_costs_with_the_authors_position_bias(pair, millions, published):
    cfg = read(SETR.format(f'snnetv2-deit3-{pair}-l'))
    for anchor in cfg.model.backbone.anchors:
        anchor.rel_pos_bias = True
    model = build_on_meta(cfg)
    total, auxiliary = num_parameters(model), num_parameters(model.auxiliary_head)
    assert total / 1e6 == pytest.approx(millions, abs=0.005)
    assert (total - auxiliary) / 1e6 == pytest.approx(millions - 1.11, abs=0.01)
    if pair == 's':
        table = cost_table(model)
        assert set(table) == set(published)
        for stitch in model.backbone.space:
            ratio = table[stitch.id].flops / published[stitch.id]['flops']
            assert abs(ratio - 1) < (0.01 if stitch.end_anchor == 1 else 0.03), stitch


def at_step(n, first, peak, num_steps=36360):
    """A value of the one-cycle policy that many steps into its rising part."""
    rise = 1 + math.cos(math.pi * n / (0.3 * num_steps - 1))
    return peak + (first - peak) / 2 * rise


@pytest.mark.parametrize('name', paths('dpt/*.py'))
def test_nyu_configs_run_what_the_authors_ran(name):
    cfg, model = load(name)
    optimizer = optimizer_after(cfg, model, 100)
    assert type(optimizer) is torch.optim.AdamW
    names = {p: name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        rate = 2e-5
        if 'backbone-lr0.1' in name:
            (in_backbone,) = {names[p].startswith('backbone.') for p in group['params']}
            rate *= 0.1 if in_backbone else 1
        assert group['lr'] == pytest.approx(at_step(100, rate / 25, rate), rel=1e-9)
        assert group['weight_decay'] == pytest.approx(0.01)
        assert group['betas'] == (pytest.approx(at_step(100, 0.95, 0.85)), 0.999)
    # 24 epochs of the 24231 training images, four GPUs.
    assert cfg.train_dataloader.batch_size == 4
    assert cfg.train_cfg.max_iters == 24 * math.ceil(24231 / 16)
    assert {s.end for s in cfg.param_scheduler} == {cfg.train_cfg.max_iters}
    head = model.decode_head
    assert head.reassemble_blocks.readout_type == 'project'
    assert not any('norm' in type(m).__name__.lower() for m in head.modules())
    assert head.loss_decode.warm_up_iters == 100
    assert model.data_preprocessor.seg_pad_val == 0


@pytest.mark.parametrize('variant', ['', '-r16'])
def test_published_costs_on_nyu(published_depth, variant):
    cfg, model = load(NYU.format(f'snnetv2-deit3-s-l{variant}'))
    table = cost_table(model, cfg.test_cfg.input_size)
    assert set(table) == set(published_depth)
    # fvcore counts norms and upsampling too: 0.3 to 0.6 GFLOPs.
    for stitch_id, flops in published_depth.items():
        assert 0.996 < table[stitch_id].flops / flops < 1, stitch_id
