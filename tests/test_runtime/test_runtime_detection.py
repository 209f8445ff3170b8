"""Boxes among which a detector's heads choose."""

import numpy as np
import pytest

from snnet_mm.runtime.detection import Detections


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
