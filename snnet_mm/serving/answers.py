"""Images of requests, and predictions as bodies of answers."""

import io
import json
import math
from typing import NamedTuple

import numpy as np
from PIL import Image

from snnet_mm.runtime import Detections
from snnet_mm.runtime.folder import describe, to_pixels

FORMATS = 'BMP', 'JPEG', 'PNG', 'PPM', 'TIFF', 'WEBP'
TEXT = 'text/plain; charset=utf-8'


class Answer(NamedTuple):
    """An HTTP answer; ``about`` are headers, such as the stitch that ran."""

    status: int
    body: bytes
    media_type: str
    about: dict[str, str] = {}


def refuse(status: int, sentence: str) -> Answer:
    """Return an answer that says in a sentence why there is no prediction."""
    return Answer(status, f'{sentence}\n'.encode(), TEXT)


def later(sentence: str, milliseconds: float = 0) -> Answer:
    """Return a 503 that says when to try again, in whole seconds from 1 on."""
    about = {'Retry-After': str(max(math.ceil(milliseconds / 1000), 1))}
    return refuse(503, sentence)._replace(about=about)


def check_body(body: bytes, max_pixels: int) -> Answer | None:
    """Look at the head of an image file; return why it is not taken."""
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            width, height = image.size
    except Exception:  # decoders raise errors of all kinds
        words = f'body of {len(body)} bytes; allowed: images of {", ".join(FORMATS)}'
        return refuse(415, words)
    if width * height > max_pixels:
        words = f'image of {width}x{height}; allowed: {max_pixels} pixels or fewer'
        return refuse(413, words)
    return None


def encode(found: np.ndarray | Detections) -> tuple[bytes, str]:
    """Return a prediction as PNG, if it is a map, or JSON, and its media type."""
    if isinstance(found, Detections) or found.ndim == 1:
        return json.dumps(describe(found)).encode(), 'application/json'
    file = io.BytesIO()
    Image.fromarray(to_pixels(found)).save(file, 'PNG', compress_level=1)
    return file.getvalue(), 'image/png'
