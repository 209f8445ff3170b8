"""Every tool that works on stitches, on anchors of every family of timm."""

import pytest
import torch
from block_counts import count_blocks
from mmengine.config import ConfigDict
from torch.testing import assert_close

from snnet_mm.costs import cost_table, measure_latency
from snnet_mm.exports import StitchExporter, single_stitch
from snnet_mm.models import set_stitch
from snnet_mm.stitching import visiting_order

pytest.importorskip('timm')
pytest.importorskip('onnxruntime')

SAM = dict(window_size=3, global_attn_indexes=(1,))
FAMILIES = {
    'vit_small_patch14_reg4_dinov2': {},
    'deit_small_distilled_patch16_224': {},
    'vit_base_patch16_clip_224.openai': {},
    'eva02_small_patch14_224': {},
    'vit_small_patch16_dinov3': {},
    'vit_small_patch16_rope_mixed_224': {},
    'beit_base_patch16_224': dict(use_shared_rel_pos_bias=True, use_abs_pos_emb=True),
    'samvit_base_patch16': SAM,
}
# Learned rotary frequencies and a shared bias are counted with the embedding alone.
SHARED = {'vit_small_patch16_rope_mixed_224', 'beit_base_patch16_224'}
SFS, FSF = 7, 8


@pytest.fixture
def stitched(toy_cfg, build):
    """Config and model of a segmentor on two narrow anchors of a family."""

    def stitched(name, **backbone):
        cfg = toy_cfg(**backbone)
        anchor = dict(type='TimmAnchor', model=name, pretrained=True)
        anchor['img_size'] = 56 if 'patch14' in name else 64
        args = dict(FAMILIES[name], num_heads=2)
        cfg.model.backbone.anchors = [
            ConfigDict(anchor, model_args=dict(args, embed_dim=width, depth=depth))
            for width, depth in ((16, 3), (24, 5))
        ]
        cfg.model.decode_head.in_channels = 24
        return cfg, build(cfg)

    return stitched


FAST = {
    'vit_small_patch14_reg4_dinov2',
    'eva02_small_patch14_224',
    'samvit_base_patch16',
}


@pytest.mark.parametrize(
    'name',
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in FAST)) for n in FAMILIES],
)
def test_stitches_alone_prefixes_and_latency(stitched, logits, name):
    cfg, model = stitched(name, out_indices=(2, 4))
    costs, backbone = cost_table(model), model.backbone
    images = torch.randn(2, 3, 64, 64)
    alone = {}
    for stitch in backbone.space:
        set_stitch(model, stitch.id)
        alone[stitch.id] = logits(model, images)
        if stitch.id not in (SFS, FSF):
            continue
        exported, single = single_stitch(cfg, model, stitch.id)
        anchors = exported.model.backbone.anchors
        assert not [a for a in anchors if 'pretrained' in a]
        assert_close(logits(single, images), alone[stitch.id], rtol=1e-5, atol=1e-5)
        held = sum(p.numel() for p in single.parameters())
        if name not in SHARED:
            assert held == costs[stitch.id].params
    calls = []
    for block in (b for anchor in backbone.anchors for b in anchor.blocks):
        block.register_forward_hook(lambda *_: calls.append(1))
    with backbone.sharing_prefixes():
        for stitch in visiting_order(backbone.space):
            set_stitch(model, stitch.id)
            assert torch.equal(logits(model, images), alone[stitch.id])
    assert len(calls) == count_blocks(backbone.space, shared=True)
    measured = measure_latency(model, (64, 64), rounds=1)
    assert set(measured.by_stitch) == set(backbone.space.ids)


@pytest.mark.parametrize(
    'name, formats',
    [
        ('eva02_small_patch14_224', ['torch-export']),
        *[
            pytest.param(name, ['torch-export', 'onnx'], marks=pytest.mark.slow)
            for name in FAMILIES
        ],
    ],
)
def test_graphs_for_images_of_another_size(
    stitched, logits, compare_graphs, tmp_path, name, formats
):
    exporter = StitchExporter(*stitched(name), tmp_path, size=(40, 72))
    compare_graphs(exporter, FSF, formats, logits)
