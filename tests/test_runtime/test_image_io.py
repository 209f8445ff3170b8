"""Image files are listed and read, and predictions become files."""

import io
import re

import cv2
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from snnet_mm.runtime import Detections, Panoptic
from snnet_mm.runtime.image_io import as_png, describe, list_image_files, read_image


def test_list_image_files_of_folder_and_of_list(tmp_path):
    """Paths are relative to the list; outputs keep apart what has equal stems."""
    source, out = tmp_path / 'images', tmp_path / 'images/out'
    for name in ('0_5.png', '0_8.png', '0_8.bmp', 'sub/1_8.png', 'out/0_8.png'):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(b'')
    stems = [image.stem for image in list_image_files(source, out)]
    assert stems == ['0_5', '0_8.bmp', '0_8.png', 'sub/1_8']
    assert len(list_image_files(source / 'sub', source)) == 1  # next to its folder
    text = tmp_path / 'list.txt'
    text.write_text(f'images/0_5.png\n\n{source}/sub/1_8.png\nimages/0_5.png\n')
    assert list_image_files(text, out) == [
        (source / '0_5.png', '0_5.png', '0_5'),
        (source / 'sub/1_8.png', 'sub/1_8.png', 'sub/1_8'),
    ]
    (tmp_path / 'empty').mkdir()
    for wrong in (source / '0_5.png', tmp_path / 'none', tmp_path / 'empty'):
        with pytest.raises(ValueError, match='source=.* is invalid'):
            list_image_files(wrong, out)
    with pytest.raises(ValueError, match='out=.* is invalid'):
        list_image_files(source, source)


def test_read_image_equals_opencv(tmp_path):
    """JPEG, turned by its EXIF data, and grey, with a palette or transparent."""
    pixels = cv2.resize(np.random.default_rng(0).random((4, 5, 3)), (50, 40))
    image, exif = Image.fromarray((255 * pixels).astype(np.uint8)), Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / 'turned.jpg', exif=exif)
    for mode in ('L', 'P', 'RGBA'):
        image.convert(mode).save(tmp_path / f'{mode}.png')
    for path in tmp_path.iterdir():
        assert_array_equal(read_image(path), cv2.imread(str(path))[..., ::-1])
    # Other channels are as mm loads them.
    for name, channels, flag in (('L', 1, 0), ('RGBA', 4, -1)):
        wanted = cv2.imread(str(tmp_path / f'{name}.png'), flag)
        found = read_image(tmp_path / f'{name}.png', channels)
        assert_array_equal(found, wanted.reshape(40, 50, channels))


def save(pixels, kind):
    """Return an image file in memory."""
    Image.fromarray(pixels).save(file := io.BytesIO(), kind)
    return file.getvalue()


@pytest.mark.parametrize('in_memory', [True, False])
@pytest.mark.parametrize('kind', ['JPEG', 'PNG', 'TIFF', 'WEBP', 'BMP', 'GIF', 'text'])
def test_read_image_says_why_it_cannot(tmp_path, monkeypatch, kind, in_memory):
    """In words, whatever the decoder raises, and without addresses of objects."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    content = b'no image' if kind == 'text' else save(pixels, kind)

    def why(content):
        path = tmp_path / 'file'
        path.write_bytes(content)
        with pytest.raises(ValueError) as error:
            read_image(io.BytesIO(content) if in_memory else path)
        assert type(error.value) is ValueError
        assert not re.search('0x|<|Error', str(error.value))
        return str(error.value)

    torn = [why(content[:number]) for number in (0, len(content) // 3)]
    assert torn[0].startswith('the format is unknown; expected one of BMP, JPEG, PNG')
    if kind in ('GIF', 'text'):
        assert why(content) == torn[0] == torn[1]
    else:
        monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 999)
        assert why(content).startswith('Image size (2000 pixels) exceeds limit of 1998')


def test_as_png_keeps_classes_and_millimetres():
    masks = np.arange(6).reshape(2, 3)
    depths = np.float32([[0.5, 99, -1], [np.nan, np.inf, -np.inf]])
    for found, wanted in (
        (masks, masks.astype(np.uint8)),
        (masks + 300, (masks + 300).astype(np.uint16)),
        (depths, np.uint16([[500, 65535, 0], [0, 0, 0]])),
    ):
        png = np.frombuffer(as_png(found), np.uint8)
        pixels = cv2.imdecode(png, cv2.IMREAD_UNCHANGED)
        assert pixels.dtype == wanted.dtype
        assert_array_equal(pixels, wanted)


def test_describe_class_objects_and_segments():
    """Segments become objects; pixels of none are left out."""
    assert describe(np.float32([0.25, 0.75]), 2) == dict(label=1, score=0.75)
    boxes = np.float32([[1, 2, 4, 6]])
    found = Detections(boxes, np.float32([0.5]), np.array([2]), None)
    (about,) = describe(found, 3)['objects']
    assert (about['bbox'], about['category_id']) == ([1, 2, 3, 4], 3)
    segments = np.array([[0, 1001, 2], [0, 1001, 1001]])
    first, second = describe(Panoptic(segments, None), 2)['objects']
    assert (first['area'], first['category_id'], first['score']) == (2, 1, 1.0)
    assert (second['category_id'], second['bbox']) == (2, [1, 0, 2, 2])
    assert second['segmentation'] == dict(size=[2, 3], counts=[2, 2, 1, 1])
    assert describe(Panoptic(segments, found), 2)['objects'] == [about]
