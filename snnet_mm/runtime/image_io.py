"""Image files: listing, reading, and predictions as PNG and JSON."""

import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from .checks import check
from .detections import Detections, Panoptic

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = '.bmp', '.jpeg', '.jpg', '.png', '.ppm', '.tif', '.tiff', '.webp'
FORMATS = 'BMP', 'JPEG', 'PNG', 'PPM', 'TIFF', 'WEBP'
RECORD = '.predicted.json'  # in folders of predictions; see Folder


class ImageFile(NamedTuple):
    """An image, its path relative to the folder, and the stem of its outputs."""

    path: Path
    name: str
    stem: str


def find_images(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[Path]:
    """Yield all visible images below a folder, sorted by path, without predictions."""
    files = sorted(folder.rglob('*'))
    predicted = {path.parent for path in files if path.name == RECORD}
    for path in files:
        parts = path.relative_to(folder).parts
        hidden = any(p[0] == '.' or p in ('__MACOSX', '@eaDir') for p in parts)
        known = path.suffix.lower() in suffixes and path.is_file()
        if known and not hidden and predicted.isdisjoint(path.parents):
            yield path


def list_image_files(
    source: str | os.PathLike, out: str | os.PathLike
) -> list[ImageFile]:
    """List the images in a text file, or below a folder except those in ``out``.

    The text file contains one path per line, relative to the folder of the file.
    Folders of predictions, also of other models, are skipped.
    """
    source, out = Path(source), Path(out).resolve()
    is_list = source.is_file() and source.suffix.lower() not in SUFFIXES
    expected = 'a folder with images other than predictions, or a text file with one '
    expected += 'path per line'
    check(is_list or source.is_dir(), 'argument: source', str(source), expected)
    if is_list:
        lines = source.read_text(encoding='utf-8').splitlines()
        paths = {Path(os.path.abspath(source.parent / line)) for line in lines if line}
        root = os.path.commonpath([p.parent for p in paths]) if paths else ''
    else:
        root = source.resolve()
        check(out != root, '--out', str(out), 'a folder other than that of the images')
        inside = root in out.parents  # it may be above the images instead
        paths = {p for p in find_images(root) if not (inside and out in p.parents)}
    check(paths, 'argument: source', str(source), expected)
    names = [path.relative_to(root) for path in sorted(paths)]
    number = Counter(name.with_suffix('') for name in names)
    stems = [n.with_suffix('') if number[n.with_suffix('')] == 1 else n for n in names]
    return [
        ImageFile(Path(root, name), name.as_posix(), stem.as_posix())
        for name, stem in zip(names, stems, strict=True)
    ]


@contextmanager
def open_image(
    source: Path | BinaryIO, formats: Sequence[str] | None = None
) -> Iterator['Image.Image']:
    """Open an image file with PIL; a ValueError says why it cannot be decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source, formats=formats) as image:
            yield image
    except UnidentifiedImageError:  # its words contain addresses of objects
        names = ', '.join(FORMATS)
        raise ValueError(f'the format is unknown; expected one of {names}') from None
    except Exception as error:  # decoders raise exceptions of many classes
        raise ValueError(str(error) or type(error).__name__) from error


def read_image(path: Path | BinaryIO, channels: int = 3) -> np.ndarray:
    """Read an image as uint8 RGB ``(H, W, 3)``, oriented by its EXIF data.

    With one channel it is grey ``(H, W, 1)``, with four BGRA ``(H, W, 4)``, as mm loads
    images unchanged. A ValueError says why an image cannot be read.
    """
    from PIL import ImageOps

    with open_image(path, FORMATS) as image:
        if image.mode[0] in 'IF':
            raise ValueError(f'mode {image.mode}; expected 8 bits per channel')
        image = ImageOps.exif_transpose(image)
        if channels == 4:
            if image.mode != 'RGBA':
                raise ValueError(f'mode {image.mode}; expected RGBA')
            return np.asarray(image)[..., [2, 1, 0, 3]]
        pixels = np.asarray(image.convert('RGB' if channels == 3 else 'L'))
        return pixels.reshape(*pixels.shape[:2], channels)


def encode(
    found: np.ndarray | Detections | Panoptic, num_classes: int, **about: object
) -> bytes:
    """Encode a map as PNG, another prediction as JSON together with other facts."""
    if isinstance(found, np.ndarray) and found.ndim == 2:
        return as_png(found)
    return json.dumps(about | describe(found, num_classes)).encode()


def as_png(found: np.ndarray) -> bytes:
    """Encode a map: classes in 8 or 16 bits, depths in millimetres, 0 if not finite."""
    from PIL import Image

    if found.dtype.kind == 'f':
        known = np.where(np.isfinite(found), found, 0) * 1000.0
        pixels = known.round().clip(0, 65535).astype(np.uint16)
    else:
        pixels = found.astype(np.uint8 if found.max() < 256 else np.uint16)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, 'PNG', compress_level=1)
    return file.getvalue()


def describe(found: np.ndarray | Detections | Panoptic, num_classes: int) -> dict:
    """Convert a prediction to JSON types: the top class, or objects as in COCO."""
    if isinstance(found, np.ndarray):
        label = int(found.argmax())
        return dict(label=label, score=round(float(found[label]), 6))
    if isinstance(found, Panoptic):
        found = found.as_detections(num_classes)
    objects = []
    for i, (left, top, right, bottom) in enumerate(found.boxes.astype(float)):
        box = [round(x, 3) for x in (left, top, right - left, bottom - top)]
        about = dict(category_id=int(found.labels[i]) + 1, bbox=box, iscrowd=0)
        about |= dict(score=round(float(found.scores[i]), 6), area=box[2] * box[3])
        if found.masks is not None:
            mask = found.masks[i]
            about |= dict(area=int(mask.sum()), segmentation=run_lengths(mask))
        objects.append(about)
    return dict(objects=objects)


def run_lengths(mask: np.ndarray) -> dict:
    """Return COCO's uncompressed run lengths, column-major and zeros first."""
    pixels = np.concatenate([[False], mask.ravel(order='F')])
    changes = np.flatnonzero(pixels[1:] != pixels[:-1])
    counts = np.diff(changes, prepend=0, append=mask.size).tolist()
    return dict(size=[*mask.shape], counts=counts)
