"""What is done with a graph's predictions."""

import numpy as np
import pytest

from snnet_mm.runtime.steps import Steps


def test_an_image_too_thin_to_resize_is_refused():
    resize = dict(step='resize', size=[64, 64], keep_ratio=True)
    caller = dict(before=[resize, dict(step='channels', order='RGB')], after=[])
    manifest = dict(input=dict(shape=['batch', 3, 64, 64]), caller=caller)
    steps = Steps(manifest)
    with pytest.raises(ValueError, match=r'image=\(1, 200\); .*pixels once resized'):
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
