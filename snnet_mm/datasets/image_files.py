"""Find the images in folders, and decode them to detect damaged files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from snnet_mm.runtime.image_io import SUFFIXES

ORIENTATION = 0x0112  # EXIF tag; values from 5 on swap rows and columns
DARK = 32  # highest value of an image, of 255, that hardly shows anything
# Suffixes of images and label maps that training does not read.
OTHER_SUFFIXES = (
    *('.avif', '.cr2', '.dcm', '.dng', '.exr', '.gif', '.heic', '.heif', '.jfif'),
    *('.jp2', '.jpe', '.mat', '.nef', '.npy', '.npz', '.pgm', '.svg', '.tga'),
)


class ImageFacts(NamedTuple):
    """Height and width as loaded for training, how it is turned, and its maximum."""

    size: tuple[int, int]
    orientation: int  # of EXIF
    highest: int  # value of 255, as loaded


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is none of the user's data."""
    return name.startswith('.') or name in ('__MACOSX', '@eaDir')


def find_files(folder: Path, suffixes: Sequence[str]) -> Iterator[Path]:
    """Yield all visible files below a folder with one of the suffixes, sorted."""
    for path in sorted(folder.rglob('*')):
        hidden = any(map(is_hidden, path.relative_to(folder).parts))
        if path.suffix.lower() in suffixes and not hidden and path.is_file():
            yield path


def find_images(folder: Path) -> Iterator[Path]:
    """Yield all visible images below a folder, sorted by path."""
    return find_files(folder, SUFFIXES)


def unread(*folders: Path) -> list[str]:
    """Return a note on files whose format training does not read."""
    found = [p.name for folder in folders for p in find_files(folder, OTHER_SUFFIXES)]
    formats = f'expected one of {", ".join(SUFFIXES)}'
    return note(f'files are left out, by their format ({formats})', found)


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image; raise a ValueError with its path if it is damaged."""
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError) as error:  # PIL raises both
        raise ValueError(f'{path} cannot be read: {error}') from error


def read_size(path: Path) -> tuple[int, int]:
    """Return height and width as loaded for training, from the header alone."""
    with opened(path) as image:
        return _turned(image)[0]


def read_image(path: Path) -> ImageFacts:
    """Return facts of an image as loaded for training; decode the whole image."""
    with opened(path) as image:
        size, orientation = _turned(image)
        image.draft('RGB', [side // 8 for side in image.size])  # decodes a JPEG faster
        pixels = np.asarray(image)
    if image.mode == 'F':
        raise ValueError(f'{path} has floats, which training cannot read')
    highest = 255 if image.mode in '1P' else int(pixels.max())
    # Of 16 bits, training reads the upper 8.
    return ImageFacts(size, orientation, highest >> 8 * (image.mode[0] == 'I'))


def _turned(image: Image.Image) -> tuple[tuple[int, int], int]:
    """Return the size as loaded by OpenCV, and the EXIF orientation that it applies."""
    orientation = image.getexif().get(ORIENTATION, 1)
    orientation = 1 if image.format == 'WEBP' else orientation  # not turned
    return (image.size if orientation >= 5 else image.size[::-1]), orientation


def image_notes(facts: Mapping[Path, ImageFacts], turned: Sequence[int]) -> list[str]:
    """Return notes on images whose labels or values training may read otherwise.

    Args:
        facts: Facts of every image.
        turned: EXIF orientations that training applies to the image, and that the
            labels do not show to be applied to them.
    """
    rotated = [p.name for p, fact in facts.items() if fact.orientation in turned]
    dark = [p.name for p, fact in facts.items() if fact.highest < DARK]
    what = f'images have no value above {DARK} of 255 in training, which reads the '
    what += 'upper 8 of 16 bits: stretch them to 8 bits'
    if max(fact.highest for fact in facts.values()) < 2:
        raise ValueError('; '.join(note(what, dark)))
    exif = 'images have an EXIF orientation, which training applies to the image and '
    exif += 'not to its label; if labels were drawn on unturned pixels, save the '
    exif += 'images without it'
    return note(exif, rotated) + note(what, dark)


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


def note(what: str, names: Sequence) -> list[str]:
    """Return a list of one sentence that counts ``names``, or an empty list."""
    first = ', '.join(map(str, names[:3])) + ', ...' * (len(names) > 3)
    return [f'{len(names)} {what}: {first}'] if names else []
