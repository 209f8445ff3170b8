"""Graphs and checkpoints of stitches of many networks, of images of other sizes."""

from pathlib import Path

import pytest
import torch
from manifests import open_exported
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, init_default_scope
from old_torch import writes_onnx
from small import SHORT
from staged_anchors import ENDS, convnext, disturb, levit, mobilenet, resnet, swin
from torch.testing import assert_close

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

import snnet_mm  # noqa: E402
import snnet_mm.tasks.mmpretrain  # noqa: E402
from snnet_mm.exports import StitchExporter  # noqa: E402
from snnet_mm.models import set_stitch  # noqa: E402

# Tracing takes its time for every block. Of depths 2 and 3, stitch 2 runs 1 and 1.
WINDOWS = dict(window_size=3, global_blocks=(0,), decomposed_rel_pos=True)
PLAIN = [
    dict(abs_pos_embed=False, rel_pos_bias=True, with_cp=True),
    dict(cls_token=False, **WINDOWS),
]
TIMM = (
    'vit_small_patch14_reg4_dinov2',
    'deit_small_distilled_patch16_224',
    'vit_base_patch16_clip_224.openai',
    'eva02_small_patch14_224',
    'vit_small_patch16_dinov3',
    'vit_small_patch16_rope_mixed_224',
)
APART = dict(downsampling_blocks=True)
TWO = dict(depths=(1, 2), heads=(1, 2))
PAIRS = dict(
    swin=('swin', 'swin', [swin(8, **TWO), swin(12, (2, 3), (1, 2))]),
    mixed=('resnet', 'swin', [resnet(), swin(12, (2, 2, 2, 2))]),
    convnext=('convnext', 'convnext', [convnext(), convnext((12, 16, 20, 24))]),
    levit=('levit', 'levit', [levit(), levit((24, 24, 32))]),
    bridge=('mobilenet', 'swin', [mobilenet(), swin(12, (2,) * 4, **APART)]),
)
SIZES = dict(swin=(48, 72), mixed=(61, 72), convnext=(64, 48), levit=(64, 64))
IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])


def classifier(name):
    """Config and model of a stitched classifier of 5 classes."""
    *families, anchors = PAIRS[name]
    widths = [MODELS.build(anchor).block_dims[-1] for anchor in anchors]
    ends = [
        dict(in_channels=width, **ENDS[family])
        for width, family in zip(widths, families, strict=True)
    ]
    stages = (0, 1) if name == 'swin' else None
    backbone = dict(type='SNNetv1', anchors=anchors, stages=stages, out='end')
    if name == 'bridge':
        layer = dict(type='BottleneckAdapter')
        own = dict(type='BridgedBackbone', stages=[(0, 0), (0, 3)])
        backbone |= dict(stitching_layer=layer, **own)
    head = dict(type='StitchedClsHead', num_classes=5, anchor_heads=ends)
    model = dict(type='ImageClassifier', backbone=backbone, head=head)
    model['data_preprocessor'] = dict(to_rgb=True, num_classes=5, **IMAGENET)
    cfg = Config(dict(default_scope='mmpretrain', model=model))
    init_default_scope('mmpretrain')
    return cfg, disturb(MODELS.build(cfg.model)).eval()


@torch.no_grad()
def assert_graph_predicts(exporter, stitch, predict):
    """Assert that any number of images are predicted; return the manifest."""
    model, manifest = exporter.model, exporter.export_stitch(stitch, ['onnx'])
    (file,) = manifest['stitches'][0]['files']
    run, normalise = open_exported(exporter.out_dir, file), IMAGENET
    mean, std = (torch.tensor(normalise[k]).view(3, 1, 1) for k in ('mean', 'std'))
    set_stitch(model, stitch)
    for number in (1, 3):
        images = 255 * torch.rand(number, 3, *exporter.size)
        wanted = predict(model, (images - mean) / std)
        assert_close(run(images), wanted, rtol=1e-4, atol=1e-4)
    return manifest


@pytest.mark.slow
@writes_onnx
@pytest.mark.parametrize('anchor', [*PLAIN, *TIMM])
def test_graphs_of_segmentors(toy_cfg, build, logits, tmp_path, anchor):
    if isinstance(anchor, dict):
        cfg = toy_cfg(anchor, SHORT)
    else:
        cfg, size = toy_cfg(), 56 if 'patch14' in anchor else 64
        anchor = dict(type='TimmAnchor', model=anchor, pretrained=True, img_size=size)
        cfg.model.backbone.anchors = [
            ConfigDict(anchor, model_args=dict(num_heads=2, embed_dim=w, depth=depth))
            for w, depth in ((16, 2), (24, 3))
        ]
        cfg.model.decode_head.in_channels = 24
    exporter = StitchExporter(cfg, build(cfg), tmp_path, size=(40, 56))
    manifest = assert_graph_predicts(exporter, 2, logits)
    assert manifest['input']['shape'] == ['batch', 3, 40, 56]
    assert manifest['input']['channels'] == 'RGB'
    assert manifest['outputs'][0]['shape'] == ['batch', 5, 40, 56]
    source = str(Path(snnet_mm.__file__).parent).encode()
    for path in tmp_path.glob('stitch_2_*'):
        assert source not in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize('name', PAIRS)
def test_graphs_of_classifiers(name, tmp_path):
    pytest.importorskip('onnxruntime')
    cfg, model = classifier(name)
    exporter = StitchExporter(cfg, model, tmp_path, SIZES.get(name, (61, 72)))
    stitch = model.backbone.space.ids[-1]
    assert_graph_predicts(exporter, stitch, lambda model, images: model(images))


def test_levit_has_one_size(tmp_path):
    with pytest.raises(ValueError, match=r'\(64, 64\), the only size that'):
        StitchExporter(*classifier('levit'), tmp_path, size=(64, 96))
