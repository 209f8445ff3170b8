"""What two-stage detectors cost."""

import pytest
import torch
from config_models import num_parameters

from snnet_mm.costs import cost_table

pytest.importorskip('mmdet')


def test_heads_run_on_as_many_boxes_as_prediction_allows(detector):
    costs = cost_table(detector)
    assert costs.input_size == (64, 64)
    box, mask = 30, 20
    cells = {4: 256, 8: 64, 16: 16, 32: 4}
    neck = {
        4: 64 * 4 * 96 * 48 + cells[4] * (48 * 32 + 9 * 32 * 32),
        8: cells[8] * (96 * 32 + 9 * 32 * 32),
        16: cells[16] * (96 * 32 + 9 * 32 * 32),
    }
    rpn = sum(cells.values()) * (2 * 9 * 32 * 32 + 32 * 3 * 5)
    box_head = box * (49 * 4 * 9 * 32 * 32 + 49 * 32 * 128 + 128 * (2 + 4))
    mask_head = mask * (49 * (2 * 9 * 32 * 32 + 4 * 32 * 32) + 196 * 32)
    other = sum(neck.values()) + rpn + box_head + mask_head
    backbone = cost_table(detector.backbone, (64, 64))
    for i in (0, 1, 9):
        assert costs[i].flops == backbone[i].flops + other
        heads = (detector.neck, detector.rpn_head, detector.roi_head)
        others = sum(map(num_parameters, heads))
        assert costs[i].params == backbone[i].params + others


def test_where_prediction_runs_more_backbone_and_neck_are_counted_alone(detector):
    """As with the point head of PointRend, RoI extractors with weights and cascades."""
    scope, roi = 'backbone and neck alone', detector.roi_head
    for owner, name in ((roi, 'point_head'), (roi.bbox_roi_extractor, 'convs')):
        owner.add_module(name, torch.nn.Linear(2, 3))
        assert cost_table(detector).scope == scope
        delattr(owner, name)
    assert cost_table(detector).scope is None
    roi.bbox_head = torch.nn.ModuleList([roi.bbox_head])
    costs, alone = cost_table(detector), cost_table(detector.backbone, (64, 64))
    assert costs.scope == scope
    for i in alone:
        assert costs[i].params == alone[i].params + num_parameters(detector.neck)
