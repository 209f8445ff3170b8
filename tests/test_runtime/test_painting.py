"""Predictions painted on images."""

import numpy as np
import pytest

from snnet_mm.runtime import Detections, Panoptic, paint

GREY = np.full((12, 16, 3), 100, np.uint8)
PALETTE = [[200, 0, 0], [0, 200, 50]]


def test_maps_have_the_colours_of_their_classes_or_are_grey():
    classes = np.zeros((12, 16), int)
    classes[:, 8:] = 1
    painted = paint(GREY, classes, palette=PALETTE, opacity=0.25)
    assert painted.dtype == np.uint8
    assert painted[0, 0].tolist() == [125, 75, 75]
    assert painted[0, 8].tolist() == [75, 125, 88]
    metres = np.ones((12, 16), np.float32)
    metres[:, 8:] = 4
    painted = paint(GREY, metres, opacity=1)
    assert painted[0, 0].tolist() == [191] * 3
    assert painted[0, 8].tolist() == [0] * 3
    metres[0, :3] = np.nan, np.inf, -1
    painted = paint(GREY, metres, opacity=1)
    assert painted[0, :4, 0].tolist() == [100, 100, 255, 191]
    assert painted[0, 8].tolist() == [0] * 3
    assert np.array_equal(paint(GREY, np.full_like(metres, np.nan)), GREY)
    # Without a palette all classes differ.
    painted = paint(GREY[:1], np.arange(16)[None], opacity=1)
    assert len({tuple(pixel) for pixel in painted[0]}) == 16
    assert np.array_equal(paint(GREY, np.float32([0.2, 0.8])), GREY)


IMAGE = np.full((60, 120, 3), 100, np.uint8)
MASKS = np.zeros((2, 60, 120), bool)
MASKS[0, 52:56, 60:70] = True
BOXES = np.float32([[20, 10, 110, 57.2], [0, 0, 300, 9]])
FOUND = Detections(BOXES, np.float32([0.9, 0.2]), np.array([1, 0]), MASKS)


def test_objects_have_masks_boxes_and_names():
    pytest.importorskip('supervision')
    painted = paint(IMAGE, FOUND, ['car', 'sky'], PALETTE, opacity=0.5)
    inside = painted[53, 65].tolist()
    assert inside == pytest.approx([50, 150, 75], abs=1)
    assert painted[50, 65].tolist() == [100] * 3
    assert (painted[11, 40:111] == PALETTE[1]).all()
    assert (painted[57, 20:111] == PALETTE[1]).all()
    assert (IMAGE == 100).all()
    for names, least in ((['car', 'see'], 0.3), (['car', 'sky'], 0.1)):
        other = paint(IMAGE, FOUND, names, PALETTE, 0.5, least)
        assert (other != painted).any()
    assert np.array_equal(paint(IMAGE, FOUND, score_thr=0.95), IMAGE)
    nothing = Detections(*(x[:0] for x in FOUND))
    assert np.array_equal(paint(IMAGE, nothing), IMAGE)
    segments = np.zeros((60, 120), np.int32)
    segments[30:] = 1001
    painted = paint(IMAGE, Panoptic(segments, None), ['sky', 'car'], PALETTE)
    assert painted[45, 60].tolist() == pytest.approx([50, 150, 75], abs=1)
