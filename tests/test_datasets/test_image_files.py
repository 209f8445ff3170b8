import re

import numpy as np
import pytest
from labelled_folders import write
from PIL import Image

from snnet_mm.datasets.image_files import find_images, read_all, read_size


def test_images_are_found_below_a_folder(tmp_path):
    for name in ('b.JPG', 'a/c.png', 'a/._c.png', 'a.txt'):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert [p.name for p in find_images(tmp_path)] == ['c.png', 'b.JPG']


def test_a_picture_of_a_turned_camera_has_the_size_of_its_pixels_in_training(tmp_path):
    image = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / 'turned.jpg', exif=exif)
    image.save(tmp_path / 'plain.jpg')
    assert read_size(tmp_path / 'turned.jpg') == (60, 40)
    assert read_size(tmp_path / 'plain.jpg') == (40, 60)


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
def test_damaged_images_are_named_all_at_once(tmp_path, suffix):
    paths = [tmp_path / f'{i}{suffix}' for i in range(6)]
    for path in paths:
        write(path, (40, 60))
    assert read_all(read_size, [(p,) for p in paths]) == [(40, 60)] * 6
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match='and 2 other files') as caught:
        read_all(read_size, [(p,) for p in paths])
    named = [p.name in str(caught.value) for p in paths]
    assert named == [False, True, True, True, False, False]
    assert re.search('truncated', str(caught.value))
