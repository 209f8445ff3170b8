"""ViTDet's configs: models, rates and costs by the values of the paper."""

import re
from functools import cache

import numpy as np
import pytest
import torch
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, PARAM_SCHEDULERS
from vitdet_configs import CONFIGS, load

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table

pytestmark = pytest.mark.ops
COCO = sorted(CONFIGS.glob('*.py'))
RATES = dict(small=0.7, base=0.7, large=0.8)
DROP_PATH = dict(small=0.1, base=0.1, large=0.4)
ARCH_OF_WIDTH = {384: 'small', 768: 'base', 1024: 'large'}


@cache
def built(path):
    """A config and its model on meta tensors, for tests that only look."""
    cfg = load(path)
    with torch.device('meta'):
        return cfg, MODELS.build(cfg.model)


def anchors_of(model):
    """Anchors by the name of their architecture."""
    anchors = getattr(model.backbone, 'anchors', [model.backbone])
    return {ARCH_OF_WIDTH[anchor.block_dims[0]]: anchor for anchor in anchors}


@pytest.mark.parametrize('path', COCO, ids=lambda p: p.stem)
def test_models_are_those_of_vitdet(path):
    _, model = built(path)
    side = 512 if '512x512' in path.name else 1024
    for arch, anchor in anchors_of(model).items():
        windows = [block.window_size for block in anchor.blocks]
        is_global = [i for i, size in enumerate(windows) if size == 0]
        assert is_global == ([5, 11, 17, 23] if arch == 'large' else [2, 5, 8, 11])
        assert set(windows) == {0, 14}
        rates = [block.drop_path.rate for block in anchor.blocks]
        expected = np.linspace(0, DROP_PATH[arch], anchor.depth)
        np.testing.assert_allclose(rates, expected, atol=1e-7)
        assert anchor.grid == (side // 16, side // 16)
        assert anchor.num_prefix == 0
        assert anchor.with_cp == ('8xb8' in path.name)
        offsets = [len(b.attn.rel_pos_bias.rel_pos_h) for b in anchor.blocks]
        assert set(offsets) == {27, 2 * side // 16 - 1}
    assert model.data_preprocessor.pad_size_divisor == side
    assert model.neck.strides == (4, 8, 16, 32, 64)
    generator = model.rpn_head.prior_generator
    assert [s for s, _ in generator.strides] == [4, 8, 16, 32, 64]
    assert [len(c.conv.weight) for c in model.rpn_head.rpn_conv] == [256, 256]
    box, mask = model.roi_head.bbox_head, model.roi_head.mask_head
    assert [len(c.conv.weight) for c in box.shared_convs] == [256] * 4
    assert [tuple(fc.weight.shape) for fc in box.shared_fcs] == [(1024, 256 * 49)]
    assert [len(c.conv.weight) for c in mask.convs] == [256] * 4
    assert (box.num_classes, mask.num_classes) == (80, 80)
    assert (box.reg_class_agnostic, mask.class_agnostic) == (False, False)
    norms = {m for m in model.modules() if type(m).__name__ == 'MapLayerNorm'}
    assert len(norms) == 1 + 2 * 4 + 4 + 4
    assert {norm.eps for norm in norms} == {1e-6}
    assert not any('BatchNorm' in type(m).__name__ for m in model.modules())
    cfg = model.train_cfg
    assert (cfg.rpn_proposal.nms_pre, model.test_cfg.rpn.nms_pre) == (2000, 1000)
    assert cfg.rpn_proposal.nms.iou_threshold == 0.7
    assert cfg.rcnn.assigner.match_low_quality is False


@pytest.mark.parametrize('arch, millions', [('b', 111), ('l', 331)])
def test_parameters_are_those_of_vitdet(arch, millions):
    """As in its table of results, with positions of 14x14 patches and a cls token."""
    path = CONFIGS / f'mask-rcnn_deit3-{arch}_8xb1-100e_coco-1024x1024.py'
    _, model = built(path)
    width = model.backbone.block_dims[0]
    more = (64 * 64 - 14 * 14 - 1) * width + 2 * len(model.backbone.blocks) * width
    total = sum(p.numel() for p in model.parameters()) - more
    assert round(total / 1e6) == millions


@pytest.mark.parametrize('path', COCO, ids=lambda p: p.stem)
def test_schedules_and_rates(path):
    cfg, model = built(path)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    optimizer = wrapper.optimizer
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.defaults['betas'] == (0.9, 0.999)
    assert wrapper.clip_grad_kwargs is None
    found = {
        id(p): (group['lr'], group['weight_decay'])
        for group in optimizer.param_groups
        for p in group['params']
    }
    for arch, anchor in anchors_of(model).items():
        rate, last = RATES[arch], anchor.blocks[-1]
        lowest = pytest.approx(1e-4 * rate ** (anchor.depth + 1))
        assert found[id(anchor.patch_embed.proj.weight)] == (lowest, 0.1)
        assert found[id(anchor.pos_embed)] == (lowest, 0)
        assert found[id(last.mlp.fc1.weight)] == (pytest.approx(1e-4 * rate), 0.1)
        table = last.attn.rel_pos_bias.rel_pos_h
        assert found[id(table)] == (pytest.approx(1e-4 * rate), 0)
        assert found[id(last.ls1.gamma)] == (pytest.approx(1e-4 * rate), 0)
    for part in (model.neck, model.rpn_head, model.roi_head):
        for p in part.parameters():
            assert found[id(p)] == (1e-4, 0.1 if p.ndim > 1 else 0)
    for name, p in model.backbone.named_parameters():
        if 'stitching_layers' in name and p.requires_grad:
            assert found[id(p)] == (1e-4, 0.1 if p.ndim > 1 else 0)

    gpus, batch = map(int, re.search(r'_(\d)xb(\d)-', path.name).groups())
    images = gpus * batch
    assert cfg.train_dataloader.batch_size == batch
    epochs = 25 if '25e' in path.name else 100
    iterations = cfg.train_cfg.max_iters
    assert iterations * images / epochs == 118000
    warmup, steps = [
        PARAM_SCHEDULERS.build(dict(s, optimizer=wrapper)) for s in cfg.param_scheduler
    ]
    assert wrapper.get_lr()['base_lr'] == [pytest.approx(1e-7)]
    assert (warmup.begin, warmup.end) == (0, 250)
    shares = [m / iterations for m in sorted(steps.milestones)]
    assert shares == pytest.approx([163889 / 184375, 177546 / 184375], abs=1e-6)
    assert steps.gamma == 0.1


@pytest.mark.parametrize(
    'name, gflops, sizes',
    [
        (
            '8xb1-100e_coco-1024x1024',
            (522.3, 1859.4),
            [1, 8, *[4, 4, 8, 12, 8] * 3, 4, 4, 8, 1],
        ),
        ('1xb8-25e_coco-512x512', (260.4, 625.0), [1, *[12] * 11, 1]),
    ],
)
def test_costs_and_groups(name, gflops, sizes):
    cfg, model = built(CONFIGS / f'mask-rcnn_snnetv2-deit3-s-l_{name}.py')
    costs = cost_table(model, cfg.test_cfg.input_size)
    found = tuple(round(costs[i].flops / 1e9, 1) for i in (0, 1))
    assert found == gflops
    flops = costs.column('flops').values()
    assert (min(flops), max(flops)) == (costs[0].flops, costs[1].flops)
    sampler = ResourceConstrainedSampler(costs, step=10e9)
    assert [len(group) for group in sampler.groups] == sizes


@pytest.mark.parametrize('pair', ['s', 'b'])
def test_every_stitch_attends_globally_four_times(pair):
    """Slow global blocks are the last ones of the fast global blocks' groups."""
    path = CONFIGS / f'mask-rcnn_snnetv2-deit3-{pair}-l_8xb1-100e_coco-1024x1024.py'
    backbone = built(path)[1].backbone
    assert len(backbone.space) == 134
    for stitch in backbone.space:
        at = [
            fast_block
            for segment in stitch.segments
            for fast_block in _global_blocks(backbone, segment)
        ]
        assert at == [2, 5, 8, 11], stitch


def _global_blocks(backbone, segment):
    """The fast blocks that the global blocks of a segment are or belong to."""
    blocks = backbone.anchors[segment.anchor].blocks
    depth = backbone.anchors[0].depth
    for i in range(segment.begin, segment.end):
        if blocks[i].window_size == 0:
            yield i * depth // len(blocks)
