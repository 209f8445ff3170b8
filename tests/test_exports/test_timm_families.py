"""Graphs of anchors of families of timm."""

import pytest
from mmengine.config import ConfigDict
from old_torch import writes_onnx

from snnet_mm.exports import StitchExporter

pytest.importorskip('timm')
pytest.importorskip('onnxruntime')

FAMILIES = (
    'vit_small_patch14_reg4_dinov2',
    'deit_small_distilled_patch16_224',
    'vit_base_patch16_clip_224.openai',
    'eva02_small_patch14_224',
    'vit_small_patch16_dinov3',
    'vit_small_patch16_rope_mixed_224',
)
FS = 2


@pytest.fixture
def stitched(toy_cfg, build):
    """Config and model of a segmentor on two narrow anchors of a family."""

    def stitched(name):
        cfg = toy_cfg()
        anchor = dict(type='TimmAnchor', model=name, pretrained=True)
        anchor['img_size'] = 56 if 'patch14' in name else 64
        cfg.model.backbone.anchors = [
            ConfigDict(
                anchor, model_args=dict(num_heads=2, embed_dim=width, depth=depth)
            )
            for width, depth in ((16, 2), (24, 3))
        ]
        cfg.model.decode_head.in_channels = 24
        return cfg, build(cfg)

    return stitched


@pytest.mark.slow
@writes_onnx
@pytest.mark.parametrize('name', FAMILIES)
def test_graphs_for_images_of_another_size(
    stitched, logits, compare_graphs, tmp_path, name
):
    exporter = StitchExporter(*stitched(name), tmp_path, size=(40, 72))
    compare_graphs(exporter, FS, ['onnx'], logits)
