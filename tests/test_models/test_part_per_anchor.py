"""A head or a neck for each anchor that a stitch ends in, on its own maps."""

import copy

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from tiny import TOY, tiny_config
from torch.testing import assert_close
from toy import without_weights

from snnet_mm.costs import cost_table
from snnet_mm.evaluation import recalibrate_bn
from snnet_mm.exports import single_stitch
from snnet_mm.models import set_stitch
from snnet_mm.stitching import TwoWaySpace
from snnet_mm.tasks.detection import samples_of

SegDataSample = pytest.importorskip('mmseg.structures').SegDataSample
DET = TOY.parent / 'mask-rcnn_snnetv2-fast-slow_1xb8-300_toy-scenes-64x64.py'
# Depths 2 and 4, widths 8 and 12: 0 fast, 1 slow, 2 FS, 4 SF.
WIDTHS, IDS, IMAGES = (8, 12), (0, 1, 2, 4), (2, 3, 32, 32)
PYRAMID, ROI = 'SimpleFeaturePyramid', 'StandardRoIHead'
HEADS = [dict(type='SETRUPHead', in_channels=width) for width in WIDTHS]


@pytest.fixture
def cfg():
    """The config of a segmentor with a head for each of its two anchors."""
    init_default_scope('mmseg')
    cfg = tiny_config()
    cfg.model.backbone.maps_of = 'end'
    cfg.model.decode_head.update(type='PartPerAnchor', parts=copy.deepcopy(HEADS))
    return cfg


@torch.no_grad()
def test_stitches_equal_models_alone_and_exports(cfg, randomise, tmp_path):
    images, wanted = torch.randn(IMAGES), []
    for a, out_indices in enumerate([(0, 0, 1, 1), (0, 1, 2, 3)]):
        alone = copy.deepcopy(cfg.model)  # as it was trained before
        alone.decode_head.update(alone.decode_head.pop('parts')[a])
        alone.backbone = dict(alone.backbone.anchors[a], out_indices=out_indices)
        trained = randomise(MODELS.build(alone)).eval()
        path = str(tmp_path / f'{a}.pth')
        torch.save(dict(state_dict=trained.state_dict()), path)
        wanted.append(trained(images))
        parts = cfg.model.backbone.anchors[a], cfg.model.decode_head.parts[a]
        for part, prefix in zip(parts, ('backbone.', 'decode_head.'), strict=True):
            part.init_cfg = dict(type='Pretrained', checkpoint=path, prefix=prefix)
    model = MODELS.build(copy.deepcopy(cfg.model)).eval()
    model.init_weights()
    costs, of_backbone = cost_table(model), cost_table(model.backbone, (32, 32))
    for i in IDS:
        set_stitch(model, i)
        found, end = model(images), model.backbone.space[i].end_anchor
        assert i > 1 or found.equal(wanted[i])
        # 1x1 to 8 channels at 16 places, to 5 at 16 times as many.
        macs = 16 * WIDTHS[end] * 8 + 16 * 16 * 8 * 5
        assert costs[i].flops == of_backbone[i].flops + macs
        exported, single = single_stitch(cfg, model, i)
        assert_close(single(images), found, rtol=1e-5, atol=1e-5)
        assert HEADS[end].items() <= exported.model.decode_head.items()
        assert sum(p.numel() for p in single.parameters()) == costs[i].params


def test_training_and_statistics_are_of_one_head(cfg, randomise):
    segmentor = randomise(MODELS.build(cfg.model)).eval()
    labels = PixelData(data=torch.zeros(1, 32, 32))
    batch = dict(inputs=[torch.randint(0, 256, (3, 32, 32))])
    batch['data_samples'] = [SegDataSample(gt_sem_seg=labels)]
    statistics = recalibrate_bn(segmentor, [batch], IDS)
    head = segmentor.train().decode_head
    for stitch in segmentor.backbone.space:
        set_stitch(segmentor, stitch.id)
        segmentor.zero_grad()
        segmentor(torch.randn(IMAGES)).sum().backward()
        trained = {p for p in head.parameters() if p.grad is not None}
        assert trained == {*head.parts[stitch.end_anchor].parameters()}
        assert trained == {*head.parameters()} - {*head.idle_parameters(stitch)}
        ends = {name.partition('.parts.')[2][0] for name in statistics[stitch.id]}
        assert ends == {str(stitch.end_anchor)}


def test_parts_that_do_not_fit(cfg):
    head, space = cfg.model.decode_head, TwoWaySpace((2, 4))
    three, other = [*HEADS, HEADS[0]], [HEADS[0], dict(HEADS[1], num_classes=9)]
    for parts, key in (
        (HEADS[0], r'PartPerAnchor\.parts'),
        ([dict(in_channels=8)], r'PartPerAnchor\.parts'),
        (three, r'PartPerAnchor\.parts'),
        (other, r'PartPerAnchor\.parts\.num_classes'),
    ):
        with pytest.raises(ValueError, match=key):
            MODELS.build(head | dict(parts=parts)).check_space(space)


@torch.no_grad()
def test_pyramids_and_roi_heads_of_detectors(randomise):
    pytest.importorskip('mmdet')
    cfg = Config.fromfile(DET)
    init_default_scope('mmdet')
    without_weights(cfg.model)
    cfg.model.backbone.maps_of = 'end'
    for anchor, width in zip(cfg.model.backbone.anchors, WIDTHS, strict=True):
        anchor.arch = dict(embed_dims=width, depth=width // 4, num_heads=2)
    pyramids = [dict(type=PYRAMID, in_channels=width) for width in WIDTHS]
    cfg.model.neck.update(type='PartPerAnchor', parts=pyramids)
    cfg.model.roi_head.update(type='PartPerAnchor', parts=[dict(type=ROI)] * 2)
    model = randomise(MODELS.build(copy.deepcopy(cfg.model))).eval()
    images, costs = torch.randn(1, 3, 64, 64), cost_table(model)
    assert costs.scope is None
    assert len(model.predict(images, samples_of(images), rescale=False)) == 1
    for i in IDS:
        set_stitch(model, i)
        exported, single = single_stitch(cfg, model, i)
        kinds = exported.model.neck.type, exported.model.roi_head.type
        assert kinds == (PYRAMID, ROI)
        assert sum(p.numel() for p in single.parameters()) == costs[i].params
        found = model.extract_feat(images)
        assert_close(single.extract_feat(images), found)
