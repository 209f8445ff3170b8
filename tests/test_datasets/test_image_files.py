import re

import numpy as np
import pytest
from labelled_folders import write
from PIL import Image

from snnet_mm.datasets.image_files import (
    find_images,
    image_notes,
    read_all,
    read_image,
    read_size,
)


def test_images_are_found_below_a_folder(tmp_path):
    for name in ('b.JPG', 'a/c.png', 'a/._c.png', '.a/d.png', 'a.txt'):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert [p.name for p in find_images(tmp_path)] == ['c.png', 'b.JPG']


@pytest.mark.parametrize(
    ('name', 'size'), [('x.jpg', (60, 40)), ('x.png', (60, 40)), ('x.webp', (40, 60))]
)
def test_a_picture_of_a_turned_camera_is_as_in_training(tmp_path, name, size):
    cv2 = pytest.importorskip('cv2')
    image = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / name, exif=exif)
    image.save(tmp_path / 'plain.jpg')
    assert cv2.imread(str(tmp_path / name)).shape[:2] == size
    assert read_size(tmp_path / name) == read_image(tmp_path / name).size == size
    assert read_image(tmp_path / 'plain.jpg').size == (40, 60)


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
def test_damaged_images_are_named_all_at_once(tmp_path, suffix):
    paths = [tmp_path / f'{i}{suffix}' for i in range(6)]
    for path in paths:
        write(path, (40, 60))
    found = read_all(read_image, [(p,) for p in paths])
    assert [facts.size for facts in found] == [(40, 60)] * 6
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match='and 2 other files') as caught:
        read_all(read_image, [(p,) for p in paths])
    named = [p.name in str(caught.value) for p in paths]
    assert named == [False, True, True, True, False, False]
    assert re.search('truncated', str(caught.value))


@pytest.mark.parametrize(
    ('suffix', 'channels'), [('.png', 1), ('.png', 3), ('.tif', 3)]
)
def test_read_image_of_16_bits_as_training_does(tmp_path, suffix, channels):
    cv2 = pytest.importorskip('cv2')
    path = tmp_path / f'deep{suffix}'
    pixels = np.arange(2400, dtype=np.uint16).reshape(40, 60)  # 12 bits
    cv2.imwrite(str(path), np.stack([pixels] * channels, -1))
    facts = read_image(path)
    assert facts == ((40, 60), 1, cv2.imread(str(path)).max()) == ((40, 60), 1, 9)
    (note,) = image_notes({path: facts}, turned=())
    assert note.startswith('1 images have no value above 32 of 255 in training')
    cv2.imwrite(str(path), np.stack([pixels // 10] * channels, -1))
    with pytest.raises(ValueError, match=f'no value above .*deep{suffix}'):
        image_notes({path: read_image(path)}, turned=())


def test_images_that_training_cannot_read(tmp_path):
    Image.fromarray(np.zeros((4, 6), np.float32)).save(tmp_path / 'x.tif')
    with pytest.raises(ValueError, match='x.tif has floats, which training cannot'):
        read_image(tmp_path / 'x.tif')
