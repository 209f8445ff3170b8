"""Configs of networks with stages and of adapters: stitches, costs and parameters."""

import pytest
from config_models import build_on_meta, load, num_parameters, paths, read

from snnet_mm.costs import cost_table, whole_model_cost

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

TINY = 'imagenet/tiny/snnetv1-{}-fast-slow_1xb64-600_tinyimagenet20-64x64.py'
CAMVID = 'swin/camvid/upernet_snnetv1-swin-fast-slow_1xb8-1000_camvid-240x176.py'
ADE20K = 'swin/upernet_{}_8xb2-160k_ade20k-512x512.py'
COCO = 'swin/mask-rcnn_{}_8xb2-3x_coco.py'
BRIDGED = paths('bridging/*.py')
# GFLOPs of both networks, and over gaps from the first stage to each. The paper has
# 4.09, 3.58 and 1.67 for ResNet-50 (table 1) and 35 % of Swin-T (figure 4); the text
# has 67 % for its third stage, which is 77 % here.
GFLOPS = {
    'resnet50-resnet50': (4.0892, 4.0892, 3.8708, 3.5754, 2.8432, 1.6743),
    'resnet50-swin-t': (4.0892, 4.4906, 4.1925, 4.0865, 3.4549, 1.5674),
    'vit-s-vit-s': (4.5989, 4.5989, 4.2205, 3.8421, 3.0853, 2.3285),
}


@pytest.mark.parametrize(
    'name, stages, numbers, gflops',
    [
        # test_staged_backbone.py compares the costs of those on ImageNet.
        (TINY.format('swin'), (0, 1, 2), (2, 7), (0.01219, 0.04291)),
        (TINY.format('resnet'), (1, 2), (2, 8), (0.01064, 0.02225)),
        (CAMVID, (0, 1, 2), (2, 7), (0.3329, 0.7187)),
        pytest.param(
            *(ADE20K.format('snnetv1-swin-ti-s'), (0, 1, 2)),
            *((2, 19), (237.47, 260.58)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_staged_configs_stitches_and_costs(name, stages, numbers, gflops):
    cfg, model = load(name)
    space = model.backbone.space
    assert space.stages == stages
    anchors = len(space.anchor_ids)
    assert (anchors, len(space) - anchors) == numbers
    costs = cost_table(model, cfg.test_cfg.get('input_size'))
    found = [costs[i].flops / 1e9 for i in space.anchor_ids]
    assert found == pytest.approx(gflops, rel=5e-3)


def test_swin_configs_have_parameters_of_openmmlab():
    for name, millions in {
        ADE20K.format('swin-ti'): 59.94,
        ADE20K.format('swin-s'): 81.26,
        COCO.format('swin-ti'): 47.79,
        COCO.format('swin-s'): 69.11,
    }.items():
        parameters = num_parameters(load(name)[1]) / 1e6
        assert parameters == pytest.approx(millions, abs=0.005), name


@pytest.mark.slow
@pytest.mark.parametrize('pair', GFLOPS)
def test_bridging_configs_costs_over_all_gaps(pair):
    (name,) = (n for n in BRIDGED if f'/bridge-{pair}_' in n)
    cfg = read(name)
    assert cfg.model.backbone.stages == [(0, 3)]
    cfg.model.backbone.stages = [(0, s) for s in range(4)]
    costs = cost_table(build_on_meta(cfg))
    found = [costs[i].flops / 1e9 for i in costs]
    assert found == pytest.approx(GFLOPS[pair], abs=1e-4)


@pytest.mark.parametrize('name, gflops', [('resnet50', 1.91), ('swin-t', 0.89)])
def test_bridging_finetune_keeps_ends_and_grid_reductions(name, gflops):
    name = f'bridging/finetune-{name}_2xb256-10e_in1k-224x224.py'
    _, model = load(name)
    blocks = model.backbone.kept_blocks
    strides = model.backbone.block_strides
    first = {0, *(i for i in range(1, 16) if strides[i] > strides[i - 1])}
    assert blocks == first | {14, 15}
    assert all(p.requires_grad for p in model.parameters())
    cost, _ = whole_model_cost(model, (224, 224))
    assert cost.flops / 1e9 == pytest.approx(gflops, abs=0.0055)
    assert cost.params == num_parameters(model)
