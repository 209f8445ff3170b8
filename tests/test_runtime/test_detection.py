"""Boxes among which a detector's heads choose."""

import numpy as np
import pytest

from snnet_mm.runtime.detection import Detections, _choose


@pytest.mark.parametrize(('number', 'left'), [(2, 2), (100, 3), (-1, 3)])
def test_the_number_of_objects(number, left):
    """In mmdet a negative number is none."""
    boxes = np.float32([[0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]])[:, None]
    scores = np.float32([[0.5, 0.5], [0.9, 0.1], [0.7, 0.3]])  # the last: background
    step = dict(above=0.05, iou=0.5, number=number)
    found, scores, labels = _choose(boxes, scores, step)
    assert found[:, 0].tolist() == [20, 40, 0][:left]
    assert scores.tolist() == pytest.approx([0.9, 0.7, 0.5][:left])
    assert labels.tolist() == [0] * left


def test_objects_for_supervision():
    pytest.importorskip('supervision')
    masks = np.zeros((2, 6, 6), bool)
    masks[1, :2] = True
    boxes = np.float32([[0, 0, 3, 3], [1, 2, 4, 6]])
    found = Detections(boxes, np.float32([0.9, 0.5]), np.array([4, 2]), masks)
    theirs = found.to_supervision()
    assert theirs.area.tolist() == [0, 12]  # of the masks
    assert theirs[theirs.class_id == 2].xyxy.tolist() == [[1, 2, 4, 6]]
    assert theirs.confidence.tolist() == pytest.approx([0.9, 0.5])
    assert found._replace(masks=None).to_supervision().area.tolist() == [9, 12]
