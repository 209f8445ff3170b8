"""ViTDet's configs: models, rates and costs by the values of the paper."""

import re

import numpy as np
import pytest
import torch
from config_models import GROUPS_OF_134, load, num_parameters, optimizer_after, paths

from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.evaluation import cost_table

pytestmark = pytest.mark.ops
COCO = paths('vitdet/*.py')
RATES = dict(small=0.7, base=0.7, large=0.8)
DROP_PATH = dict(small=0.1, base=0.1, large=0.4)
GROUPS_OF_10_G = [1, 8, *[4, 4, 8, 12, 8] * 3, 4, 4, 8, 1]
ARCH_OF_WIDTH = {384: 'small', 768: 'base', 1024: 'large'}


def anchors_of(model):
    """Anchors by the name of their architecture."""
    anchors = getattr(model.backbone, 'anchors', [model.backbone])
    return {ARCH_OF_WIDTH[anchor.block_dims[0]]: anchor for anchor in anchors}


@pytest.mark.parametrize('name', COCO)
def test_models_are_those_of_vitdet(name):
    _, model = load(name)
    side = 512 if '512x512' in name else 1024
    for arch, anchor in anchors_of(model).items():
        windows = [block.window_size for block in anchor.blocks]
        is_global = [i for i, size in enumerate(windows) if size == 0]
        assert is_global == ([5, 11, 17, 23] if arch == 'large' else [2, 5, 8, 11])
        assert set(windows) == {0, 14}
        rates = [block.drop_path.rate for block in anchor.blocks]
        expected = np.linspace(0, DROP_PATH[arch], anchor.depth)
        np.testing.assert_allclose(rates, expected, atol=1e-7)
        assert anchor.num_prefix == 0
        offsets = [len(b.attn.rel_pos_bias.rel_pos_h) for b in anchor.blocks]
        assert set(offsets) == {27, 2 * side // 16 - 1}
    box, mask = model.roi_head.bbox_head, model.roi_head.mask_head
    counts = [len(x) for x in (model.rpn_head.rpn_conv, box.shared_convs, mask.convs)]
    assert counts == [2, 4, 4]
    assert [tuple(fc.weight.shape) for fc in box.shared_fcs] == [(1024, 256 * 49)]
    norms = {m for m in model.modules() if type(m).__name__ == 'MapLayerNorm'}
    assert len(norms) == 1 + 2 * 4 + 4 + 4
    assert not any('BatchNorm' in type(m).__name__ for m in model.modules())


@pytest.mark.parametrize('arch, millions', [('b', 111), ('l', 331)])
def test_parameters_are_those_of_vitdet(arch, millions):
    """As in its table of results, with positions of 14x14 patches and a cls token."""
    _, model = load(f'vitdet/mask-rcnn_deit3-{arch}_8xb1-100e_coco-1024x1024.py')
    width = model.backbone.block_dims[0]
    more = (64 * 64 - 14 * 14 - 1) * width + 2 * len(model.backbone.blocks) * width
    assert round((num_parameters(model) - more) / 1e6) == millions


@pytest.mark.parametrize('name', COCO)
def test_schedules_and_rates(name):
    cfg, model = load(name)
    optimizer = optimizer_after(cfg, model, 0)
    assert type(optimizer) is torch.optim.AdamW
    start = 1e-7 / 1e-4  # of the warm-up
    found = {
        id(p): (pytest.approx(group['lr'] / start), group['weight_decay'])
        for group in optimizer.param_groups
        for p in group['params']
    }
    for arch, anchor in anchors_of(model).items():
        rate, last = RATES[arch], anchor.blocks[-1]
        lowest = 1e-4 * rate ** (anchor.depth + 1)
        assert found[id(anchor.patch_embed.proj.weight)] == (lowest, 0.1)
        assert found[id(anchor.pos_embed)] == (lowest, 0)
        assert found[id(last.mlp.fc1.weight)] == (1e-4 * rate, 0.1)
        assert found[id(last.attn.rel_pos_bias.rel_pos_h)] == (1e-4 * rate, 0)
        assert found[id(last.ls1.gamma)] == (1e-4 * rate, 0)
    for p in (*model.neck.parameters(), *model.roi_head.parameters()):
        assert found[id(p)] == (1e-4, 0.1 if p.ndim > 1 else 0)
    gpus, batch = map(int, re.search(r'_(\d)xb(\d)-', name).groups())
    assert cfg.train_dataloader.batch_size == batch
    iterations, epochs = cfg.train_cfg.max_iters, 25 if '25e' in name else 100
    assert iterations * gpus * batch / epochs == 118000
    warmup, steps = cfg.param_scheduler
    assert warmup.end == 250
    shares = [m / iterations for m in steps.milestones]
    assert shares == pytest.approx([163889 / 184375, 177546 / 184375], abs=1e-6)


@pytest.mark.parametrize(
    'name, gflops, sizes',
    [
        ('8xb1-100e_coco-1024x1024', (522.3, 1859.4), GROUPS_OF_10_G),
        ('1xb8-25e_coco-512x512', (260.4, 625.0), GROUPS_OF_134),
    ],
)
def test_costs_and_groups(name, gflops, sizes):
    cfg, model = load(f'vitdet/mask-rcnn_snnetv2-deit3-s-l_{name}.py')
    costs = cost_table(model, cfg.test_cfg.input_size)
    assert tuple(round(costs[i].flops / 1e9, 1) for i in (0, 1)) == gflops
    sampler = ResourceConstrainedSampler(costs, step=10e9)
    assert [len(group) for group in sampler.groups] == sizes


@pytest.mark.parametrize('pair', ['s', 'b'])
def test_every_stitch_attends_globally_four_times(pair):
    """Slow global blocks are the last ones of the fast global blocks' groups."""
    name = f'vitdet/mask-rcnn_snnetv2-deit3-{pair}-l_8xb1-100e_coco-1024x1024.py'
    backbone = load(name)[1].backbone
    fast_depth = backbone.anchors[0].depth
    assert len(backbone.space) == 134
    for stitch in backbone.space:
        at = []
        for a, begin, end in stitch.segments:
            anchor = backbone.anchors[a]
            run = (i for i in range(begin, end) if anchor.blocks[i].window_size == 0)
            at += [i * fast_depth // anchor.depth for i in run]
        assert at == [2, 5, 8, 11], stitch
