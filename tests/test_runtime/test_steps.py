"""Pre- and postprocessing of graphs, and resizing in numpy."""

import sys

import cv2
import mmcv
import numpy as np
import pytest
import torch
from mmcv.transforms import CenterCrop
from torch.nn.functional import interpolate

from snnet_mm.runtime.resizing import best_class, resize_image, resize_maps
from snnet_mm.runtime.steps import Steps

RGB = dict(step='channels', order='RGB')
RESIZE = dict(step='resize', keep_ratio=True, backend='cv2', interpolation='bilinear')


def steps_of(shape, before, after=()):
    caller = dict(before=before, after=after)
    return Steps(dict(input=dict(shape=['batch', *shape]), caller=caller))


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize('size', [(41, 50), (12, 60), (5, 6)])
def test_resize_maps_and_best_class_equal_torch(size, align_corners):
    maps = np.random.default_rng(0).standard_normal((7, 12, 17)).astype(np.float32)
    resized = resize_maps(maps, size, align_corners)
    mode = dict(mode='bilinear', align_corners=align_corners)
    wanted = interpolate(torch.from_numpy(maps)[None], size, **mode)[0].numpy()
    np.testing.assert_allclose(resized, wanted, atol=1e-5)
    classes = best_class(maps, size, align_corners)
    np.testing.assert_array_equal(classes, resized.argmax(0))


def test_resize_image_equals_opencv():
    random = np.random.default_rng(0)
    for _ in range(40):
        height, width, *size = (int(n) for n in random.integers(1, 200, 4))
        image = random.integers(0, 256, (height, width, 3), np.uint8)
        found = resize_image(image, tuple(size))
        np.testing.assert_array_equal(found, cv2.resize(image, size[::-1]))


HOW = [('cv2', how) for how in ('bilinear', 'nearest', 'bicubic', 'area', 'lanczos')]
HOW += [('pillow', how) for how in ('nearest', 'bilinear', 'bicubic', 'lanczos')]


@pytest.mark.parametrize('channels', [1, 3, 4])
@pytest.mark.parametrize(('backend', 'interpolation'), HOW)
def test_resize_image_equals_mmcv(channels, backend, interpolation):
    random, how = np.random.default_rng(0), (backend, interpolation)
    for size in ((40, 31), (90, 20), (7, 160)):
        image = random.integers(0, 256, (60, 50, channels), np.uint8)
        loaded = image[..., 0] if channels == 1 else image  # as mm loads grey images
        settings = dict(backend=backend, interpolation=interpolation)
        wanted = mmcv.imresize(loaded, size[::-1], **settings)
        found = resize_image(image, size, *how)
        np.testing.assert_array_equal(found, wanted.reshape(*size, channels))


def test_resize_image_names_missing_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, 'cv2', None)
    image = np.zeros((4, 4, 3), np.uint8)
    assert resize_image(image, (2, 2)).shape == (2, 2, 3)
    with pytest.raises(ValueError, match="'area' is invalid.*pip install opencv"):
        resize_image(image, (2, 2), 'cv2', 'area')


def pixels_of(steps, image):
    """Return the BGR pixels that a graph gets."""
    seen = []
    steps.predict(lambda x: seen.append(x) or [np.zeros((1, 2), np.float32)], [image])
    return seen[0][0].transpose(1, 2, 0)


EDGES = [('short', 'pillow', 'bicubic'), ('long', 'cv2', 'bilinear')]
EDGES += [('width', 'cv2', 'bilinear'), ('height', 'pillow', 'bilinear')]


@pytest.mark.parametrize(('edge', 'backend', 'interpolation'), EDGES)
@pytest.mark.parametrize('size', [(50, 53), (71, 50), (60, 60), (33, 200)])
def test_edges_and_centres_are_those_of_mmpretrain(size, edge, backend, interpolation):
    transforms = pytest.importorskip('mmpretrain.datasets.transforms')
    how = dict(edge=edge, backend=backend, interpolation=interpolation)
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    results = transforms.ResizeEdge(37, **how)(dict(img=image[..., ::-1]))
    for crop, of_graph in (((24, 15), (15, 24)), ((12, 12), (12, 12))):
        wanted = CenterCrop(crop)(dict(results))['img']
        before = [dict(step='resize_edge', length=37, **how)]
        before.append(dict(step='center_crop', size=crop[::-1]))
        before.append(dict(step='channels', order='BGR'))
        steps = steps_of((3, *of_graph), before, [dict(step='softmax')])
        if steps.fits(size):
            found = pixels_of(steps, image)
            np.testing.assert_array_equal(found, wanted)
        else:  # mm would run a smaller image
            assert wanted.shape[:2] != of_graph
            assert pixels_of(steps, image).shape[:2] == of_graph


def test_several_resizings_run_in_their_order():
    first = dict(RESIZE, size=[30, 30], backend='pillow')
    second = dict(RESIZE, size=[20, 10], keep_ratio=False, interpolation='nearest')
    before = [first, second, dict(step='channels', order='BGR')]
    steps = steps_of((3, 20, 10), before, [dict(step='softmax')])
    image = np.random.default_rng(0).integers(0, 256, (60, 50, 3), np.uint8)
    small = mmcv.imresize(image[..., ::-1], (25, 30), backend='pillow')
    wanted = mmcv.imresize(small, (10, 20), interpolation='nearest')
    np.testing.assert_array_equal(pixels_of(steps, image), wanted)


def test_images_that_do_not_fit_are_interpolated_once():
    before = [dict(RESIZE, size=[40, 60]), dict(step='channels', order='RGB')]
    steps = steps_of((3, 40, 60), before, [dict(step='softmax')])
    image = np.random.default_rng(0).integers(0, 256, (80, 50, 3), np.uint8)
    assert not steps.fits((80, 50))
    np.testing.assert_array_equal(pixels_of(steps, image), cv2.resize(image, (60, 40)))


def test_prepared_images_are_not_resized():
    before = [dict(RESIZE, size=[8, 8]), dict(step='center_crop', size=[4, 4]), RGB]
    caller = dict(before=before, after=[dict(step='softmax')])
    manifest = dict(input=dict(shape=['batch', 3, 6, 6]), caller=caller)
    image = np.random.default_rng(0).random((6, 6, 3), np.float32)
    steps = Steps(manifest, prepared=True)
    steps.check_image(image)
    np.testing.assert_array_equal(pixels_of(steps, image), image)


def test_predict_image_too_thin_to_resize():
    steps = steps_of((3, 64, 64), [dict(RESIZE, size=[64, 64]), RGB])
    with pytest.raises(ValueError, match=r'image=\(1, 200\) is invalid'):
        steps.predict(None, [np.zeros((1, 200, 3), np.uint8)])


@pytest.mark.parametrize(
    ('after', 'wanted'), [('softmax', [0.25, 0.75]), ('sigmoid', [0.5, 0.75])]
)
def test_predict_probabilities_of_one_label_or_several(after, wanted):
    steps = steps_of((3, 2, 2), [RGB], [dict(step=after)])
    images = [np.zeros((2, 2, 3), np.uint8)] * 2
    scores = np.float32([[0, np.log(3)], [np.log(3), 0]])
    found = steps.predict(lambda pixels: [scores[: len(pixels)]], images)
    assert found[0].tolist() == pytest.approx(wanted)
    assert found[1].tolist() == pytest.approx(wanted[::-1])


def test_predict_image_smaller_than_window_is_enlarged():
    """Only sides that are shorter; the map has the size of the image."""
    resize = dict(step='resize', align_corners=False)
    windows = dict(step='windows', size=[8, 8], stride=[4, 4])
    steps = steps_of((3, 8, 8), [windows, RGB], [resize, dict(step='argmax')])
    seen = []

    def run(pixels):
        seen.append(pixels.shape)
        bright = pixels[:, :1] - 100
        return [np.concatenate([bright, -bright], 1)]

    for size, number in (((5, 12), 2), ((1, 1), 1), ((8, 8), 1)):
        seen.clear()
        image = np.full((*size, 3), 40, np.uint8)
        image[:, size[1] // 2 :] = 200
        (found,) = steps.predict(run, [image])
        assert found.shape == size
        assert seen == [(1, 3, 8, 8)] * number
        assert (found == (image[..., 0] < 100)).all()


def test_predict_image_larger_than_graph_of_detector_shrinks():
    """A portrait in a graph for landscapes: boxes are in pixels of the image."""
    resize = dict(RESIZE, size=[40, 80])
    pad = dict(step='pad', size=[40, 80], value=[9] * 3)
    after = [dict(step='instances', above=None)]
    steps = steps_of((3, 40, 80), [resize, RGB, pad], after)

    def run(pixels):
        inside = (pixels[0] != 9).all(0)
        height, width = inside.any(1).sum(), inside.any(0).sum()
        box = np.float32([[[0, 0, width, height]]])
        return [box, np.float32([[0.5]]), np.int64([[0]])]

    for size in ((200, 100), (100, 200), (600, 20)):
        (found,) = steps.predict(run, [np.full((*size, 3), 100, np.uint8)])
        assert found.boxes[0] == pytest.approx([0, 0, size[1], size[0]], rel=0.02)


@pytest.mark.parametrize('channels', [1, 4])
def test_predict_other_channels_keep_their_order(channels):
    pad = dict(step='pad', size=[4, 4], value=[5] * channels)
    before = [dict(step='channels', order='loaded'), pad]
    steps = steps_of((channels, 4, 4), before, [dict(step='softmax')])
    image = np.random.default_rng(0).integers(0, 256, (4, 3, channels), np.uint8)
    seen = []
    steps.check_image(image)
    steps.predict(lambda x: seen.append(x) or [np.zeros((1, 2), np.float32)], [image])
    (found,) = seen[0]
    assert (found[:, :, :3] == image.transpose(2, 0, 1)).all()
    assert (found[:, :, 3:] == 5).all()
    with pytest.raises(ValueError, match=rf'array \(H, W, {channels}\) of channels as'):
        steps.check_image(image[..., :0])
