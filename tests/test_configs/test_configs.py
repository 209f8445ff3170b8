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
from mmengine.runner import Runner
from narrow_configs import write_image

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table
from snnet_mm.models import find_stitched_backbone

pytest.importorskip('mmseg')

CAMVID = 'camvid/setr-naive_{}_1xb8-1500_camvid-240x176.py'
SETR = 'setr/setr-naive_{}_8xb2-160k_ade20k-512x512.py'
NYU = 'dpt/dpt_{}_4xb4-24e_nyu-416x544.py'
HOLOLENS = 'dpt/hololens/dpt_snnetv2-fast-slow_1xb8-200_hololens-240x160.py'
DINOV2 = 'setr/dinov2/linear_snnetv2-dinov2-b-l_8xb2-80k_ade20k-518x518.py'
GROUPS_OF_38 = [1, *[6] * 5, 1]


@pytest.mark.parametrize(
    'name, sizes',
    [
        (NYU.format('snnetv2-deit3-s-l'), GROUPS_OF_134),
        (SETR.format('snnetv2-deit3-s-l'), GROUPS_OF_134),
        (DINOV2, GROUPS_OF_134),
        (HOLOLENS, GROUPS_OF_38),
        (CAMVID.format('snnetv2-fast-slow'), GROUPS_OF_38),
    ],
)
def test_groups_of_stitches(name, sizes):
    cfg, model = load(name)
    step = cfg.default_hooks.stitch_sampling.sampler.step
    groups = ResourceConstrainedSampler(cost_table(model), step=step).groups
    assert [len(g) for g in groups] == sizes


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
    'name, num_stitches, rank',
    [
        (SETR.format('snnetv1-deit3-s-l'), 13, None),
        (SETR.format('snnetv2-deit3-s-l-tws-ros'), 134, None),
        (SETR.format('snnetv2-deit3-s-l'), 134, 16),
        (SETR.format('snnetv2-deit3-b-l'), 134, 4),
        (NYU.format('snnetv1-deit3-s-l'), 13, None),
        (NYU.format('snnetv2-deit3-s-l'), 134, 4),
        (NYU.format('snnetv2-deit3-s-l-r16'), 134, 16),
        (NYU.format('snnetv2-deit3-b-l'), 134, 4),
    ],
)
def test_stitches_and_ranks_of_the_authors(name, num_stitches, rank):
    backbone = load(name)[1].backbone
    assert len(backbone.space.ids) == num_stitches
    ranks = {getattr(x, 'rank', None) for x in backbone.stitching_layers.values()}
    assert ranks == {rank}


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
    in_groups = [names[p] for group in optimizer.param_groups for p in group['params']]
    by_part = 'paramwise_cfg' in cfg.optim_wrapper
    trained = [n for p, n in names.items() if p.requires_grad or not by_part]
    assert sorted(in_groups) == sorted(trained)
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


def train_camvid(name, data_root, work_dir, **options):
    cfg = read(CAMVID.format(name))
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


def test_camvid_from_anchors_to_stitches(tmp_path):
    for split in ('train', 'val'):
        for i in range(2):
            write_image(tmp_path / f'images/{split}/{i}.jpg')
            write_image(tmp_path / f'annotations/{split}/{i}.png', 11, channels=1)
    fast, slow = (
        train_camvid(f'vit-{name}', tmp_path, tmp_path) for name in ('fast', 'slow')
    )
    checkpoints = [f'{r.work_dir}/iter_1.pth' for r in (fast, slow)]
    options = {
        'model.backbone.anchors.0.init_cfg.checkpoint': checkpoints[0],
        'model.backbone.anchors.1.init_cfg.checkpoint': checkpoints[1],
        'model.decode_head.init_cfg.checkpoint': checkpoints[1],
        # A learning rate of nothing leaves the weights as they were loaded.
        'optim_wrapper.optimizer.lr': 0.0,
    }
    runner = train_camvid('snnetv2-fast-slow', tmp_path, tmp_path, **options)
    backbone = find_stitched_backbone(runner.model)
    for anchor, trained in zip(backbone.anchors, (fast, slow), strict=True):
        for key, value in trained.model.backbone.state_dict().items():
            assert torch.equal(anchor.state_dict()[key], value), key
    # Only the batch norm statistics have seen one batch more.
    head = slow.model.decode_head.state_dict()
    for key, value in runner.model.decode_head.named_parameters():
        assert torch.equal(value, head[key]), key
    assert set(runner.val_loop.run()) == {
        f'stitch_{i}/{m}' for i in (0, 1) for m in ('aAcc', 'mIoU', 'mAcc')
    }
