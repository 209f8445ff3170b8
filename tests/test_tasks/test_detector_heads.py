"""Graphs of the heads of two-stage detectors."""

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS, init_default_scope

from snnet_mm.tasks.detector_heads import pool, two_stage_graphs

pytestmark = pytest.mark.ops
extractors = pytest.importorskip('mmdet.models.roi_heads.roi_extractors')


@pytest.mark.parametrize('ratio', [0, 2])
def test_boxes_are_pooled_as_mmdet_does(ratio):
    """From the map of their size alone, however many points of it are read."""
    torch.manual_seed(0)
    maps = tuple(torch.randn(1, 4, side, side) for side in (64, 32, 16, 8))
    boxes = [[4, 4, 40, 40], [10, 10, 200, 220], [0, 0, 120, 100]]
    boxes = torch.tensor(boxes, dtype=torch.float32)
    layer = dict(type='RoIAlign', output_size=7, sampling_ratio=ratio)
    extractor = extractors.SingleRoIExtractor(layer, 4, [4, 8, 16, 32])
    wanted = extractor(maps, F.pad(boxes, (1, 0)))
    torch.testing.assert_close(pool(extractor, *maps, boxes), wanted)


@pytest.mark.parametrize('changed', ['clip_border', 'mask_thr_binary', None])
def test_heads_that_choose_otherwise_are_no_graphs(det_cfg, changed):
    init_default_scope('mmdet')
    model = det_cfg.model
    if changed == 'clip_border':
        model.roi_head.bbox_head.bbox_coder.clip_border = False
    elif changed:  # gives soft masks
        model.test_cfg.rcnn.mask_thr_binary = -1
    detector = MODELS.build(model).eval()
    with torch.no_grad():
        maps = detector.extract_feat(torch.zeros(1, 3, 64, 64))
    names = [name for name, *_ in two_stage_graphs(detector, maps)]
    assert names == ([] if changed else ['proposals', 'boxes', 'masks'])
