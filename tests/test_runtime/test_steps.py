"""What is done with a graph's predictions."""

import numpy as np
import pytest

from snnet_mm.runtime.steps import Steps


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
    steps = Steps(manifest, open_head=None)
    found = steps.predict(
        lambda _: [np.float32([[0, np.log(3)]])], np.zeros((2, 2, 3), np.uint8)
    )
    assert found.tolist() == pytest.approx(wanted)
