"""The backbone and its pyramid in mmdetection's own configs, nothing else changed."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import InstanceData

from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops

README = Path(__file__).parents[2] / 'configs' / 'vitdet' / 'README.md'
STOCK = {
    'retinanet': 'retinanet/retinanet_r50_fpn_1x_coco.py',
    'faster-rcnn': 'faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py',
}
CHANGES = """
_base_ = [{stock!r}]
custom_imports = dict(imports=['snnet_mm'], allow_failed_imports=False)
vit = dict(
    type='PlainViT',
    cls_token=False,
    window_size=2,
    decomposed_rel_pos=True,
    layer_scale_init=None,
    img_size=128,
)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=dict(embed_dims=16, depth=2, num_heads=2),
                global_blocks=(1,),
                **vit,
            ),
            dict(
                arch=dict(embed_dims=32, depth=4, num_heads=2),
                global_blocks=(1, 3),
                **vit,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=4),
    ),
    neck=dict(
        _delete_=True,
        type='SimpleFeaturePyramid',
        in_channels=32,
        strides={strides},
    ),
)
"""


def build(name, tmp_path):
    import mmdet

    stock = Path(mmdet.__file__).parent / '.mim' / 'configs' / STOCK[name]
    strides = (8, 16, 32, 64, 128) if name == 'retinanet' else (4, 8, 16, 32, 64)
    own = tmp_path / 'own.py'
    own.write_text(CHANGES.format(stock=str(stock), strides=strides))
    cfg = Config.fromfile(own)
    init_default_scope(cfg.default_scope)
    return MODELS.build(cfg.model).train()


def one_image(height, width):
    """An image with a bright square in it, as the data set gives it."""
    from mmdet.structures import DetDataSample

    image = torch.randint(0, 60, (3, height, width), dtype=torch.uint8)
    image[:, 16:56, 8:48] = 220
    truth = InstanceData(
        bboxes=torch.tensor([[8.0, 16, 48, 56]]), labels=torch.tensor([17])
    )
    info = dict(
        img_shape=(height, width), ori_shape=(height, width), scale_factor=(1, 1)
    )
    return dict(
        inputs=[image],
        data_samples=[DetDataSample(gt_instances=truth, metainfo=info)],
    )


def geometry(model, maps, size):
    """Sizes of the maps times the strides of the boxes made for them."""
    head = model.rpn_head if hasattr(model, 'rpn_head') else model.bbox_head
    strides = head.prior_generator.strides
    assert len(maps) == len(strides)
    return [
        (m.shape[-2] * y, m.shape[-1] * x)
        for m, (x, y) in zip(maps, strides, strict=True)
    ]


@pytest.mark.parametrize('name', STOCK)
def test_every_level_covers_the_image(name, tmp_path):
    model = build(name, tmp_path)
    batch = model.data_preprocessor(one_image(120, 250), training=True)
    size = tuple(batch['inputs'].shape[-2:])
    assert size == (128, 256)
    for stitch_id in (0, 1, 2):
        set_stitch(model, stitch_id)
        maps = model.extract_feat(batch['inputs'])
        assert geometry(model, maps, size) == [size] * 5
    # Five maps of one plain backbone would train as well, on boxes of a wrong geometry.
    plain = model.backbone(batch['inputs']) * 5
    assert geometry(model, plain, size).count(size) == 1
    if name == 'faster-rcnn':
        extractor = model.roi_head.bbox_roi_extractor
        assert list(extractor.featmap_strides) == list(model.neck.strides[:4])


@pytest.mark.parametrize('name', STOCK)
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
    first, last = losses[:3], losses[-3:]
    assert all(b < 0.8 * a for a, b in zip(first, last, strict=True)), losses
