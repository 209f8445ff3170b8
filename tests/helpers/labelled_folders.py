"""Small folders of labelled images in common layouts."""

import json
import zlib

import numpy as np
from PIL import Image


def write(path, pixels):
    """Write an array as an image, or noise of a size (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(pixels, tuple):
        name = '/'.join(path.parts[-3:])  # without the test's own folder
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        pixels = rng.integers(0, 255, (*pixels, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def halves(height=40, width=60, low=0, high=1, dtype=np.uint8):
    """Return a label map: the left third is ``low``, the rest ``high``."""
    pixels = np.full((height, width), high, dtype)
    pixels[:, : width // 3] = low
    return pixels


def write_masks(root, train='images/train masks/train', val='images/val masks/val'):
    """Write 10 training and 3 validation images with masks of classes 0 and 1."""
    for folders, number in ((train, 10), (val, 3 if val else 0)):
        for i in range(number):
            images, masks = folders.split()
            write(root / images / f'{i}.jpg', (40, 60))
            write(root / masks / f'{i}.png', halves())


def write_depth(root, number=5):
    """Write images with 16-bit depth of 1 and 4.2 metres."""
    for i in range(number):
        write(root / f'images/{i}.png', (40, 60))
        write(root / f'depth/{i}.png', halves(low=1000, high=4200, dtype=np.uint16))


def write_classes(root, splits=('train/', 'val/'), number=5):
    """Write a folder of images for each of two classes."""
    for split in splits:
        for name in ('cat', 'dog'):
            for i in range(number):
                write(root / f'{split}{name}/{name}{i}.jpg', (40, 60))


def box(number, image, category=7, **kwargs):
    found = dict(id=number, image_id=image, category_id=category, iscrowd=0)
    return found | dict(bbox=[6, 4, 30, 20], area=600) | kwargs


THINGS = [dict(id=7, name='car'), dict(id=3, name='person')]


def write_coco(root, splits=('train', 'val'), number=5, categories=THINGS, **kwargs):
    """Write images with one box each, except the last."""
    for split in splits:
        images = [
            dict(id=i, file_name=f'{i}.jpg', height=40, width=60) for i in range(number)
        ]
        for image in images:
            write(root / split / image['file_name'], (40, 60))
        content = dict(
            images=images,
            annotations=[box(i + 1, i, **kwargs) for i in range(number - 1)],
            categories=categories,
        )
        path = root / f'annotations/instances_{split}.json'
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
