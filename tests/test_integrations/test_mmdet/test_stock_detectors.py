"""The backbone and its pyramid in mmdetection's own configs, nothing else changed."""

import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData

from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops
DetDataSample = pytest.importorskip('mmdet.structures').DetDataSample

README = Path(__file__).parents[3] / 'configs' / 'vitdet' / 'README.md'
CONFIGS = {
    'retinanet': ('retinanet/retinanet_r50_fpn_1x_coco.py', (8, 16, 32, 64, 128)),
    'faster-rcnn': ('faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py', (4, 8, 16, 32, 64)),
}


def build(name, tmp_path):
    """The detector of the README with narrow anchors."""
    (changes,) = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)
    (theirs, strides), (stock, our_strides) = CONFIGS['retinanet'], CONFIGS[name]
    assert theirs in changes
    assert str(strides) in changes
    changes = changes.replace(theirs, stock).replace(str(strides), str(our_strides))
    own = tmp_path / 'own.py'
    own.write_text(changes)
    cfg = Config.fromfile(own)
    sizes = [(16, 2, (1,)), (32, 4, (1, 3))]
    for anchor, (width, depth, global_blocks) in zip(
        cfg.model.backbone.anchors, sizes, strict=True
    ):
        anchor.arch = ConfigDict(embed_dims=width, depth=depth, num_heads=2)
        anchor.update(img_size=128, window_size=2, global_blocks=global_blocks)
    cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=4)
    cfg.model.neck.in_channels = 32
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model).train()


def one_image(height, width):
    """An image with a bright square in it, as the data set gives it."""
    image = torch.randint(0, 60, (3, height, width), dtype=torch.uint8)
    image[:, 16:56, 8:48] = 220
    boxes, labels = torch.tensor([[8.0, 16, 48, 56]]), torch.tensor([17])
    truth, size = InstanceData(bboxes=boxes, labels=labels), (height, width)
    info = dict(img_shape=size, ori_shape=size, scale_factor=(1, 1))
    sample = DetDataSample(gt_instances=truth, metainfo=info)
    return dict(inputs=[image], data_samples=[sample])


def geometry(model, maps):
    """Sizes of the maps times the strides of the boxes made for them."""
    head = model.rpn_head if hasattr(model, 'rpn_head') else model.bbox_head
    strides = head.prior_generator.strides
    pairs = zip(maps, strides, strict=True)
    return [(m.shape[-2] * y, m.shape[-1] * x) for m, (x, y) in pairs]


@pytest.mark.parametrize('name', CONFIGS)
def test_every_level_covers_the_image(name, tmp_path):
    model = build(name, tmp_path)
    batch = model.data_preprocessor(one_image(120, 250), training=True)
    size = tuple(batch['inputs'].shape[-2:])
    assert size == (128, 256)
    for stitch_id in (0, 1, 2):
        set_stitch(model, stitch_id)
        maps = model.extract_feat(batch['inputs'])
        assert geometry(model, maps) == [size] * 5
    # Five maps of one plain backbone would train as well, on boxes of a wrong geometry.
    plain = model.backbone(batch['inputs']) * 5
    assert geometry(model, plain).count(size) == 1
    if name == 'faster-rcnn':
        extractor = model.roi_head.bbox_roi_extractor
        assert list(extractor.featmap_strides) == list(model.neck.strides[:4])


@pytest.mark.parametrize('name', CONFIGS)
def test_the_loss_on_one_image_falls(name, tmp_path):
    model = build(name, tmp_path)
    if name == 'faster-rcnn':
        # 32 instead of 512 boxes: the linear layers take most of a step.
        model.roi_head.bbox_sampler.num = 32
    batch = model.data_preprocessor(one_image(64, 64), training=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    losses = []
    for i in range(30):
        set_stitch(model, (0, 1, 2)[i % 3])
        loss, _ = model.parse_losses(model(**batch, mode='loss'))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # Each of the three stitches is better at the end than it was first.
    pairs = zip(losses[:3], losses[-3:], strict=True)
    assert all(last < 0.8 * first for first, last in pairs), losses
