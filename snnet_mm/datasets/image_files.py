"""Find the images in folders, and decode them to detect damaged files."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from snnet_mm.runtime.folder import SUFFIXES

ORIENTATION = 0x0112  # EXIF tag; values from 5 on swap rows and columns
Size = tuple[int, int]


def find_images(folder: Path) -> Iterator[Path]:
    """Yield all images below a folder, sorted by path."""
    for path in sorted(folder.rglob('*')):
        if path.suffix.lower() in SUFFIXES and not path.name.startswith('.'):
            yield path


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """Open an image; raise a ValueError with its path if it is damaged."""
    try:
        with Image.open(path) as image:
            yield image
    except (OSError, SyntaxError) as error:  # PIL raises both
        raise ValueError(f'{path} cannot be read: {error}') from error


def read_size(path: Path) -> Size:
    """Return height and width as loaded for training; decode the whole image."""
    with opened(path) as image:
        width, height = image.size
        turned = image.getexif().get(ORIENTATION, 1) >= 5
        image.draft('RGB', (width // 8, height // 8))  # decodes a JPEG faster
        image.load()
    return (width, height) if turned else (height, width)


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
