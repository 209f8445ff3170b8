"""What is done with a graph's predictions."""

import numpy as np
import pytest

from snnet_mm.runtime.steps import Steps


def test_an_image_too_thin_to_resize_is_refused():
    resize = dict(step='resize', size=[64, 64], keep_ratio=True)
    caller = dict(before=[resize, dict(step='channels', order='RGB')], after=[])
    manifest = dict(input=dict(shape=['batch', 3, 64, 64]), caller=caller)
    steps = Steps(manifest)
    with pytest.raises(ValueError, match=r'image=\(1, 200\) is invalid'):
        steps.predict(None, [np.zeros((1, 200, 3), np.uint8)])


@pytest.mark.parametrize(
    ('after', 'wanted'),
    [
        (['softmax', 'argmax'], [0.25, 0.75]),
        (['sigmoid', 'threshold'], [0.5, 0.75]),
    ],
)
def test_probabilities_of_one_label_and_of_several(after, wanted):
    caller = dict(before=[dict(step='channels', order='RGB')])
    caller['after'] = [dict(step=step) for step in after]
    manifest = dict(input=dict(shape=['batch', 3, 2, 2]), caller=caller)
    steps = Steps(manifest)
    images = [np.zeros((2, 2, 3), np.uint8)] * 2
    scores = np.float32([[0, np.log(3)], [np.log(3), 0]])
    found = steps.predict(lambda pixels: [scores[: len(pixels)]], images)
    assert found[0].tolist() == pytest.approx(wanted)
    assert found[1].tolist() == pytest.approx(wanted[::-1])


def test_images_smaller_than_windows_are_enlarged():
    """Only sides that are shorter; the map has the size of the image."""
    before = [dict(step='windows', size=[8, 8], stride=[4, 4])]
    before.append(dict(step='channels', order='RGB'))
    resize = dict(step='resize', align_corners=False)
    caller = dict(before=before, after=[resize, dict(step='argmax')])
    seen = []

    def run(pixels):
        seen.append(pixels.shape)
        bright = pixels[:, :1] - 100
        return [np.concatenate([bright, -bright], 1)]

    steps = Steps(dict(input=dict(shape=['batch', 3, 8, 8]), caller=caller))
    for size, number in (((5, 12), 2), ((1, 1), 1), ((3, 8), 1), ((8, 8), 1)):
        seen.clear()
        image = np.full((*size, 3), 40, np.uint8)
        image[:, size[1] // 2 :] = 200
        (found,) = steps.predict(run, [image])
        assert found.shape == size
        assert seen == [(1, 3, 8, 8)] * number
        assert (found == (image[..., 0] < 100)).all()


def test_images_larger_than_those_of_a_detector_shrink():
    """A portrait in a graph for landscapes: boxes are in pixels of the image."""
    before = [dict(step='resize', size=[40, 80], keep_ratio=True)]
    before += [dict(step='channels', order='RGB'), dict(step='pad', value=[9] * 3)]
    before[-1]['size'] = [40, 80]
    caller = dict(before=before, after=[dict(step='instances', above=None)])
    steps = Steps(dict(input=dict(shape=[1, 3, 40, 80]), caller=caller))

    def run(pixels):
        inside = (pixels[0] != 9).all(0)
        height, width = inside.any(1).sum(), inside.any(0).sum()
        box = np.float32([[[0, 0, width, height]]])
        return [box, np.float32([[0.5]]), np.int64([[0]])]

    for size in ((200, 100), (100, 200), (40, 80), (600, 20)):
        (found,) = steps.predict(run, [np.full((*size, 3), 100, np.uint8)])
        assert found.boxes[0] == pytest.approx([0, 0, size[1], size[0]], rel=0.02)


@pytest.mark.parametrize('channels', [1, 4, 7])
def test_images_of_other_channels_keep_their_order(channels):
    channel = dict(step='channels', order='loaded')
    caller = dict(before=[channel, dict(step='pad', size=[4, 4], value=[5] * channels)])
    caller['after'] = [dict(step='softmax')]
    steps = Steps(dict(input=dict(shape=['batch', channels, 4, 4]), caller=caller))
    image = np.random.default_rng(0).integers(0, 256, (4, 3, channels), np.uint8)
    seen = []
    steps.check_image(image)
    steps.predict(lambda x: seen.append(x) or [np.zeros((1, 2), np.float32)], [image])
    (found,) = seen[0]
    assert (found[:, :, :3] == image.transpose(2, 0, 1)).all()
    assert (found[:, :, 3:] == 5).all()
    with pytest.raises(ValueError, match=rf'array \(H, W, {channels}\) of channels as'):
        steps.check_image(image[..., :0])
