"""A head or a neck for each anchor that a stitch ends in, on its own maps."""

import copy

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from small import small
from torch.testing import assert_close

from snnet_mm.costs import cost_table
from snnet_mm.exports import single_stitch
from snnet_mm.models import set_stitch
from snnet_mm.stitching import TwoWaySpace
from snnet_mm.tasks.detection import samples_of

pytest.importorskip('mmseg.models')
# Depths 2 and 4, widths 8 and 12: 0 fast, 1 slow, 2 FS, 4 SF.
WIDTHS, IDS, IMAGES = (8, 12), (0, 1, 2, 4), (2, 3, 32, 32)
HEADS = [dict(type='SETRUPHead', in_channels=width) for width in WIDTHS]


@pytest.fixture
def cfg():
    """The config of a segmentor with a head for each of its two anchors."""
    init_default_scope('mmseg')
    cfg = small('tiny')
    cfg.model.backbone.maps_of = 'end'
    cfg.model.decode_head.update(type='PartPerAnchor', parts=copy.deepcopy(HEADS))
    return cfg


@torch.no_grad()
def test_part_per_anchor_stitches_equal_models_alone_and_exports(
    cfg, randomise, tmp_path
):
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
        head = model.decode_head
        idle = {*head.idle_parameters(model.backbone.space[i])}
        assert idle == {*head.parts[1 - end].parameters()}


def test_part_per_anchor_parts_that_do_not_fit(cfg):
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
def test_part_per_anchor_pyramids_and_roi_heads_of_detectors(randomise):
    pytest.importorskip('mmdet')
    cfg = small('det')
    init_default_scope('mmdet')
    cfg.model.backbone.maps_of = 'end'
    for anchor, width in zip(cfg.model.backbone.anchors, WIDTHS, strict=True):
        anchor.arch = dict(embed_dims=width, depth=width // 4, num_heads=2)
    necks = [dict(type='SimpleFeaturePyramid', in_channels=n) for n in WIDTHS]
    heads = [dict(type='StandardRoIHead')] * 2
    cfg.model.neck.update(type='PartPerAnchor', parts=necks)
    cfg.model.roi_head.update(type='PartPerAnchor', parts=heads)
    model = randomise(MODELS.build(copy.deepcopy(cfg.model))).eval()
    images = torch.randn(1, 3, 64, 64)
    for i in IDS[1:3]:
        set_stitch(model, i)
        assert len(model.predict(images, samples_of(images), rescale=False)) == 1
        _, single = single_stitch(cfg, model, i)
        found = model.extract_feat(images)
        assert_close(single.extract_feat(images), found)
