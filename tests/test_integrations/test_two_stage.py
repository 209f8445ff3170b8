"""What two-stage detectors cost."""

import pytest
import torch

from snnet_mm.evaluation import cost_table

pytestmark = pytest.mark.ops
pytest.importorskip('mmdet')


def num_params(module):
    return sum(p.numel() for p in module.parameters())


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
        others = sum(map(num_params, heads))
        assert costs[i].params == backbone[i].params + others


def test_parts_that_nobody_here_runs_are_no_part_of_the_costs(detector):
    """As the point head of PointRend, and RoI extractors with weights."""
    extractor = detector.roi_head.bbox_roi_extractor
    for owner, name in ((detector.roi_head, 'point_head'), (extractor, 'convs')):
        owner.add_module(name, torch.nn.Linear(2, 3))
        assert cost_table(detector).scope == 'backbone and neck alone'
        delattr(owner, name)
    assert cost_table(detector).scope is None


def test_of_cascades_backbone_and_neck_are_counted(detector):
    alone, neck = cost_table(detector.backbone, (64, 64)), num_params(detector.neck)
    detector.roi_head.bbox_head = torch.nn.ModuleList([detector.roi_head.bbox_head])
    costs = cost_table(detector)
    assert costs.scope == 'backbone and neck alone'
    assert {i: costs[i].params for i in costs} == {
        i: alone[i].params + neck for i in alone
    }
