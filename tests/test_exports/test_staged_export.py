"""Stitches of networks with stages, exported as models of their own."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from staged_anchors import ENDS, convnext, disturb, levit, mobilenet, resnet, swin

pytest.importorskip('timm')
pytest.importorskip('mmpretrain')

import snnet_mm.tasks.classification_parts  # noqa: E402, F401
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.single import load_single
from snnet_mm.models import set_stitch

APART = dict(downsampling_blocks=True)
SHORT = dict(depths=(1, 2), heads=(1, 2))
PAIRS = dict(
    swin=('swin', 'swin', [swin(8, **SHORT), swin(12, (2, 3), (1, 2))]),
    mixed=('resnet', 'swin', [resnet(), swin(12, (2, 2, 2, 2))]),
    convnext=('convnext', 'convnext', [convnext(), convnext((12, 16, 20, 24))]),
    levit=('levit', 'levit', [levit(), levit((24, 24, 32))]),
    bridge=('mobilenet', 'swin', [mobilenet(), swin(12, (2,) * 4, **APART)]),
)
SIZES = (48, 72), (61, 72), (64, 48), (64, 64), (61, 72)
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


@pytest.mark.slow
@pytest.mark.parametrize('name', ['mixed', 'levit', 'bridge'])
@torch.no_grad()
def test_one_stitch_alone(name, tmp_path):
    cfg, model = classifier(name)
    stitch = model.backbone.space.ids[-1]
    exporter = StitchExporter(cfg, model, tmp_path, size=(64, 64))
    manifest = exporter.export_stitch(stitch, ['mm'])
    assert manifest['stitches'][0]['files'][0]['max_difference'] == 0
    single = load_single(tmp_path / f'stitch_{stitch}.pth').eval()
    images = torch.randn(2, 3, 64, 64)
    set_stitch(model, stitch)
    assert single(images).equal(model(images))
    costs = exporter.costs[stitch]
    assert sum(p.numel() for p in single.parameters()) == costs.params


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'size'), zip(PAIRS, SIZES, strict=True), ids=list(PAIRS)
)
def test_graphs_for_any_number_of_images(name, size, compare_graphs, tmp_path):
    pytest.importorskip('onnxruntime')
    cfg, model = classifier(name)
    exporter = StitchExporter(cfg, model, tmp_path, size=size)
    stitch = model.backbone.space.ids[-1]
    compare_graphs(exporter, stitch, ['onnx'], lambda model, images: model(images))


def test_levit_has_one_size(tmp_path):
    with pytest.raises(ValueError, match=r'\(64, 64\), the only size that'):
        StitchExporter(*classifier('levit'), tmp_path, size=(64, 96))
