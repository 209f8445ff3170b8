"""Boxes among which a detector's heads choose."""

import numpy as np
import pytest

from snnet_mm.runtime.detection import _choose


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
