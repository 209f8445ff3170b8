"""What two-stage detectors cost, and how their stitches are drawn."""

import cv2
import numpy as np
import pytest
import torch
from config_models import num_parameters

import snnet_mm as sn
from snnet_mm.costs import cost_table
from snnet_mm.models import set_stitch
from snnet_mm.tasks import task_of
from snnet_mm.tasks.detection import samples_of


def test_cost_table_detector_heads_run_on_most_boxes(detector):
    """On as many boxes as prediction allows."""
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


def test_detection_run_drops_no_boxes_and_restores_thresholds(detector):
    roi, images = detector.roi_head, torch.randn(2, 3, 64, 64)
    detector.roi_head.test_cfg.score_thr = 2.0
    before = repr((detector.rpn_head.test_cfg, roi.test_cfg))
    seen = dict(box=[], mask=[])
    for kind, part in dict(box=roi.bbox_head, mask=roi.mask_head).items():
        part.register_forward_pre_hook(lambda _, x, k=kind: seen[k].append(len(x[0])))
    with torch.no_grad():
        task_of(detector).run(detector, images)
        assert seen == dict(box=[2 * 30], mask=[2 * 20])
        assert repr((detector.rpn_head.test_cfg, roi.test_cfg)) == before
        assert 'predict_by_feat' not in vars(roi.mask_head)
        (first, _) = detector.predict(images, samples_of(images), rescale=False)
    assert len(first.pred_instances) == 0


def test_detection_run_without_masks_keeps_final_thresholds(detector):
    """NMS of all boxes of thousands of classes, as in V3Det, is slow."""
    roi, seen = detector.roi_head, []
    roi.mask_head = None
    thresholds = detector.rpn_head.test_cfg.nms, roi.test_cfg.nms
    roi.bbox_head.register_forward_pre_hook(
        lambda *_: seen.append([t.iou_threshold for t in thresholds])
    )
    with torch.no_grad():
        task_of(detector).run(detector, torch.randn(1, 3, 64, 64))
    assert seen == [[1, thresholds[1].iou_threshold]]
    assert thresholds[1].iou_threshold < 1


@pytest.mark.ops
def test_predict_draws_objects_of_each_stitch(detector, tmp_path):
    resize = dict(type='Resize', scale=(64, 64), keep_ratio=True)
    data = detector.cfg.test_dataloader.dataset
    data.pipeline = [dict(type='LoadImageFromFile'), resize, *data.pipeline]
    image, drawn = np.full((64, 64, 3), (10, 60, 200), np.uint8), []
    for stitch in (0, 12):
        set_stitch(detector, stitch)
        sn.predict(detector, image, out_dir=tmp_path)
        drawn.append(cv2.imread(str(tmp_path / 'vis/00000000.jpg')))
    assert not np.array_equal(*drawn)
    # Arrays keep the order of their channels.
    assert (np.abs(np.stack(drawn) - [10.0, 60, 200]).max(-1) < 20).mean() > 0.05
