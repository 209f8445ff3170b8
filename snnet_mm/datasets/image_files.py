"""Decode image files to detect damaged ones."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from snnet_mm.runtime.image_io import open_image

ORIENTATION = 0x0112  # EXIF tag; values from 5 on swap rows and columns
# Suffixes of images and label maps that training does not read.
OTHER_SUFFIXES = (
    *('.avif', '.cr2', '.dcm', '.dng', '.exr', '.gif', '.heic', '.heif', '.jfif'),
    *('.jp2', '.jpe', '.mat', '.nef', '.npy', '.npz', '.pgm', '.svg', '.tga'),
)


class ImageFacts(NamedTuple):
    """Facts of an image as training loads it."""

    size: tuple[int, int]  # height, width
    orientation: int  # of EXIF, which training applies
    highest: int  # value of 255


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image; raise a ValueError with its path if it cannot be decoded."""
    try:
        with open_image(path) as image:
            yield image
    except ValueError as error:
        raise ValueError(f'{path} cannot be read: {error}') from error


def read_image(path: Path) -> ImageFacts:
    """Return facts of an image; decode the whole image to detect damage."""
    with opened(path) as image:
        orientation = image.getexif().get(ORIENTATION, 1)
        if image.format == 'WEBP':  # OpenCV does not turn it
            orientation = 1
        size = image.size if orientation >= 5 else image.size[::-1]
        image.draft('RGB', [side // 8 for side in image.size])  # decodes a JPEG faster
        pixels = np.asarray(image)
    if image.mode == 'F':
        raise ValueError(f'{path} has floats, which training cannot read')
    highest = 255 if image.mode in '1P' else int(pixels.max())
    # Of 16 bits, training reads the upper 8.
    return ImageFacts(size, orientation, highest >> 8 * (image.mode[0] == 'I'))


def read_all(read: Callable, items: Sequence[tuple]) -> list:
    """Return ``read(*item)`` for all items, using threads; join errors into one."""

    def attempt(item: tuple) -> Any:
        try:
            return read(*item)
        except ValueError as error:
            return error

    with ThreadPoolExecutor() as pool:
        results = list(pool.map(attempt, items))
    faults = [str(result) for result in results if isinstance(result, ValueError)]
    if faults:
        more = f'; and {len(faults) - 3} other files' if len(faults) > 3 else ''
        raise ValueError('; '.join(faults[:3]) + more)
    return results
