"""Predictions painted on images."""

import sys

import numpy as np
import pytest

from snnet_mm.runtime import Detections, paint

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
    # Without a palette all classes differ.
    painted = paint(GREY[:1], np.arange(16)[None], opacity=1)
    assert len({tuple(pixel) for pixel in painted[0]}) == 16
    assert np.array_equal(paint(GREY, np.float32([0.2, 0.8])), GREY)


def test_objects_without_supervision(monkeypatch):
    monkeypatch.setitem(sys.modules, 'supervision', None)
    image = np.full((60, 120, 3), 100, np.uint8)
    masks = np.zeros((2, 60, 120), bool)
    masks[0, 52:56, 60:70] = True
    boxes = np.float32([[20, 10, 110, 57.2], [0, 0, 300, 9]])
    found = Detections(boxes, np.float32([0.9, 0.2]), np.array([1, 0]), masks)
    painted = paint(image, found, ['car', 'sky'], PALETTE, opacity=0.5)
    assert painted[53, 65].tolist() == [50, 150, 75]  # inside of the mask
    assert painted[50, 65].tolist() == [100] * 3
    assert (painted[10:12, 20:111] == PALETTE[1]).all()  # two pixels wide
    assert (painted[56:58, 20:111] == PALETTE[1]).all()
    assert (painted[:9] == 100).all()  # too unlikely
    assert (image == 100).all()
    # The name stands on the colour of the class, where nothing else is drawn.
    other = paint(image, found, ['car', 'see'], PALETTE, opacity=0.5)
    changed = (other != painted).any(-1).nonzero()
    assert changed[0].min() >= 12
    assert changed[0].max() < 28
    both = paint(image, found, ['car', 'sky'], PALETTE, score_thr=0.1)
    assert (both[9, 80:] == PALETTE[0]).all()  # up to the border of the image
    nothing = Detections(*(x[:0] for x in found))
    assert np.array_equal(paint(image, nothing), image)


def test_objects_with_supervision():
    pytest.importorskip('supervision')
    image = np.full((60, 80, 3), 100, np.uint8)
    masks = np.zeros((2, 60, 80), bool)
    masks[0, 32:38, 42:48] = True
    boxes = np.float32([[40, 30, 70, 50], [0, 0, 9, 9]])
    found = Detections(boxes, np.float32([0.9, 0.2]), np.array([1, 0]), masks)
    painted = paint(image, found, ['car', 'sky'], PALETTE, opacity=0.5)
    assert painted[35, 45].tolist() == pytest.approx([50, 150, 75], abs=1)
    assert painted[40, 40].tolist() == PALETTE[1]
    assert (image == 100).all()
    unnamed = paint(image, found._replace(masks=None), palette=PALETTE)
    assert (unnamed != painted).any()
