"""Validation of request images, and encoding of responses."""

import io
import json
import math
from typing import NamedTuple

import numpy as np
from PIL import Image

from snnet_mm.runtime import Detections, Panoptic
from snnet_mm.runtime.folder import describe, to_pixels

FORMATS = 'BMP', 'JPEG', 'PNG', 'PPM', 'TIFF', 'WEBP'
TEXT = 'text/plain; charset=utf-8'


class Answer(NamedTuple):
    """An HTTP response; ``about`` contains headers, such as the stitch that ran."""

    status: int
    body: bytes
    media_type: str
    about: dict[str, str] = {}


def reject(status: int, sentence: str) -> Answer:
    """Return an error response with a one-sentence reason."""
    return Answer(status, f'{sentence}\n'.encode(), TEXT)


def later(sentence: str, milliseconds: float = 0) -> Answer:
    """Return a 503 with ``Retry-After`` in whole seconds, at least 1."""
    about = {'Retry-After': str(max(math.ceil(milliseconds / 1000), 1))}
    return reject(503, sentence)._replace(about=about)


def check_body(body: bytes, max_pixels: int) -> Answer | None:
    """Validate the header of an image file; return an error response or None."""
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            width, height = image.size
    except Exception:  # decoders raise arbitrary exceptions
        words = f'body of {len(body)} bytes; allowed: images of {", ".join(FORMATS)}'
        return reject(415, words)
    if width * height > max_pixels:
        words = f'image of {width}x{height}; allowed: {max_pixels} pixels or fewer'
        return reject(413, words)
    return None


def encode(found: np.ndarray | Detections | Panoptic) -> tuple[bytes, str]:
    """Encode a map as PNG, other predictions as JSON; return it and its media type."""
    if isinstance(found, Panoptic):
        found = found.segments if found.objects is None else found.objects
    if isinstance(found, Detections) or found.ndim == 1:
        return json.dumps(describe(found)).encode(), 'application/json'
    file = io.BytesIO()
    Image.fromarray(to_pixels(found)).save(file, 'PNG', compress_level=1)
    return file.getvalue(), 'image/png'
