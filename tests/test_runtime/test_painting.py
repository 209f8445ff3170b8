"""Predictions painted on images, and objects for supervision."""

import numpy as np
import pytest

from snnet_mm.runtime import Detections, Panoptic, paint

GREY = np.full((60, 120, 3), 100, np.uint8)
PALETTE = [[200, 0, 0], [0, 200, 50]]
MASKS = np.zeros((2, 60, 120), bool)
MASKS[0, 52:56, 60:70] = True
BOXES = np.float32([[20, 10, 110, 57.2], [0, 0, 300, 9]])
FOUND = Detections(BOXES, np.float32([0.9, 0.2]), np.array([1, 0]), MASKS)


def test_paint_classes():
    classes = np.zeros((60, 120), int)
    classes[:, 8:] = 1
    painted = paint(GREY, classes, palette=PALETTE, opacity=0.25)
    assert painted.dtype == np.uint8
    assert painted[0, 0].tolist() == [125, 75, 75]
    assert painted[0, 8].tolist() == [75, 125, 88]
    # Without a palette all classes differ.
    painted = paint(GREY[:1, :16], np.arange(16)[None], opacity=1)
    assert len({tuple(pixel) for pixel in painted[0]}) == 16
    # Probabilities are not drawn.
    assert np.array_equal(paint(GREY, np.float32([0.2, 0.8])), GREY)


def test_paint_depths_grey_where_finite():
    metres = np.ones((60, 120), np.float32)
    metres[:, 8:] = 4
    metres[0, :3] = np.nan, np.inf, -1
    painted = paint(GREY, metres, opacity=1)
    assert painted[0, :4, 0].tolist() == [100, 100, 255, 191]
    assert painted[0, 8].tolist() == [0] * 3
    assert np.array_equal(paint(GREY, np.full_like(metres, np.nan)), GREY)


def test_paint_objects_and_segments():
    pytest.importorskip('supervision')
    painted = paint(GREY, FOUND, ['car', 'sky'], PALETTE, opacity=0.5)
    assert painted[53, 65].tolist() == pytest.approx([50, 150, 75], abs=1)
    assert painted[50, 65].tolist() == [100] * 3
    assert (painted[[11, 57], 40:111] == PALETTE[1]).all()
    for names, score_thr in ((['car', 'see'], 0.3), (['car', 'sky'], 0.1)):
        other = paint(GREY, FOUND, names, PALETTE, 0.5, score_thr)
        assert (other != painted).any()
    assert np.array_equal(paint(GREY, FOUND, score_thr=0.95), GREY)
    segments = np.zeros((60, 120), np.int32)
    segments[30:] = 1001
    painted = paint(GREY, Panoptic(segments, None), ['sky', 'car'], PALETTE)
    assert painted[45, 60].tolist() == pytest.approx([50, 150, 75], abs=1)


def test_detections_to_supervision():
    pytest.importorskip('supervision')
    theirs = FOUND.to_supervision()
    assert theirs.area.tolist() == [40, 0]  # of the masks
    assert theirs[theirs.class_id == 0].xyxy.tolist() == [[0, 0, 300, 9]]
    assert theirs.confidence.tolist() == pytest.approx([0.9, 0.2])
