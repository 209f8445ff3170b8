import io
import json

import numpy as np
import pytest
from PIL import Image

from snnet_mm.runtime import Detections

answers = pytest.importorskip('snnet_mm.serving.answers', reason='ray is missing')


def png(height=4, width=6, mode='RGB'):
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, 'PNG')
    return file.getvalue()


@pytest.mark.parametrize(
    ('body', 'status', 'words'),
    [
        (b'', 415, 'body of 0 bytes; allowed: images of BMP, JPEG, PNG'),
        (b'GIF89a', 415, 'body of 6 bytes'),
        (png(5, 6), 413, 'image of 6x5; allowed: 24 pixels or fewer'),
    ],
)
def test_bodies_that_are_not_taken(body, status, words):
    answer = answers.check_body(body, 24)
    assert answer.status == status
    assert answer.body.decode().startswith(words)
    assert answers.check_body(png(4, 6), 24) is None


def test_predictions_as_bodies():
    masks = np.arange(6).reshape(2, 3)
    for found, wanted in (
        (masks, masks.astype(np.uint8)),
        (masks + 300, (masks + 300).astype(np.uint16)),
        (np.float32([[0.5, 99]]), np.uint16([[500, 65535]])),
    ):
        body, media_type = answers.encode(found)
        assert media_type == 'image/png'
        np.testing.assert_array_equal(Image.open(io.BytesIO(body)), wanted)
    body, media_type = answers.encode(np.float32([0.25, 0.75]))
    assert media_type == 'application/json'
    assert json.loads(body) == dict(label=1, score=0.75)
    boxes = np.float32([[1, 2, 4, 6]])
    found = Detections(boxes, np.float32([0.5]), np.array([2]), None)
    (about,) = json.loads(answers.encode(found)[0])['objects']
    assert about['bbox'] == [1, 2, 3, 4]
    assert about['category_id'] == 3


def test_when_to_come_again():
    assert answers.later('a').about == {'Retry-After': '1'}
    assert answers.later('a', 2100).about == {'Retry-After': '3'}
