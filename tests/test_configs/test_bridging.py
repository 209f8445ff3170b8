"""Configs of adapters across large gaps: networks, recipe and costs."""

import pytest
from config_models import build_on_meta, load, paths, read

from snnet_mm.evaluation import cost_table

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

IN1K = paths('bridging/*.py')
# GFLOPs of both networks, and over gaps from the first stage to each.
GFLOPS = {
    'resnet50-resnet50': (4.09, 4.09, 3.87, 3.58, 2.84, 1.67),
    'resnet50-swin-t': (4.09, 4.49, 4.19, 3.72, 2.99, 0.86),
    'vit-s-vit-s': (4.60, 4.60, 4.22, 3.84, 3.09, 2.33),
}


@pytest.mark.parametrize('name', IN1K)
def test_recipe_of_section_2(name):
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
def test_costs_over_all_gaps(pair):
    (name,) = (n for n in IN1K if f'/bridge-{pair}_' in n)
    cfg = read(name)
    assert cfg.model.backbone.stages == [(0, 3)]
    cfg.model.backbone.stages = [(0, s) for s in range(4)]
    costs = cost_table(build_on_meta(cfg))
    found = [costs[i].flops / 1e9 for i in costs]
    assert found == pytest.approx(GFLOPS[pair], abs=0.0055)
