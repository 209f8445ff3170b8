"""Predictions painted on images."""

import sys

import numpy as np
import pytest

from snnet_mm.runtime import Detections, paint

GREY = np.full((12, 16, 3), 100, np.uint8)
PALETTE = [[200, 0, 0], [0, 200, 50]]


@pytest.fixture
def found():
    """Two objects of 4x6 and 3x3 pixels, one of which is unlikely."""
    masks = np.zeros((2, 12, 16), bool)
    masks[0, 3:5, 4:8] = True
    masks[1, 8:, 8:] = True
    boxes = np.float32([[2, 2, 9.2, 8], [8, 8, 30, 30]])
    return Detections(boxes, np.float32([0.9, 0.2]), np.array([1, 0]), masks)


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
    # Without a palette all classes differ.
    painted = paint(GREY[:1], np.arange(16)[None], opacity=1)
    assert len({tuple(pixel) for pixel in painted[0]}) == 16
    assert np.array_equal(paint(GREY, np.float32([0.2, 0.8])), GREY)


def test_objects_without_supervision(found, monkeypatch):
    monkeypatch.setitem(sys.modules, 'supervision', None)
    painted = paint(GREY, found, palette=PALETTE, opacity=0.5)
    colour = (painted == PALETTE[1]).all(-1)
    assert colour.sum() == 8 * 7 - 4 * 3  # the outline, two pixels wide
    assert colour[2, 2]
    assert colour[8, 9]
    assert painted[4, 6].tolist() == [50, 150, 75]  # inside of the mask
    assert painted[5, 6].tolist() == [100] * 3
    assert (painted[9:] == 100).all()  # too unlikely
    both = paint(GREY, found, palette=PALETTE, score_thr=0.1)
    assert (both[11, 8:] == PALETTE[0]).all()  # up to the border of the image
    without = paint(GREY, found._replace(masks=None), palette=PALETTE)
    assert np.array_equal((without != 100).any(-1), colour)
    nothing = Detections(*(x[:0] for x in found))
    assert np.array_equal(paint(GREY, nothing), GREY)


def test_objects_with_supervision(found):
    pytest.importorskip('supervision')
    image = np.full((60, 80, 3), 100, np.uint8)
    masks = np.zeros((2, 60, 80), bool)
    masks[0, 32:38, 42:48] = True
    boxes = np.float32([[40, 30, 70, 50], [0, 0, 9, 9]])
    found = Detections(boxes, found.scores, found.labels, masks)
    painted = paint(image, found, ['car', 'sky'], PALETTE, opacity=0.5)
    assert painted[35, 45].tolist() == pytest.approx([50, 150, 75], abs=1)
    assert painted[40, 40].tolist() == PALETTE[1]
    assert (image == 100).all()
    unnamed = paint(image, found._replace(masks=None), palette=PALETTE)
    assert (unnamed != painted).any()
