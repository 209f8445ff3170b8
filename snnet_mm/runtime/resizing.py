"""Resizing as in mm and torch, crops and sliding windows, in numpy."""

from collections.abc import Iterator

import numpy as np

from .checks import refusal

FIXED = 2048  # fixed-point one of OpenCV's weights for 8-bit images
# OpenCV's names of mm's interpolations.
OPENCV = dict(nearest='NEAREST', bicubic='CUBIC', area='AREA', lanczos='LANCZOS4')


def fit_size(
    size: tuple[int, int], bounds: tuple[int, int], keep_ratio: bool
) -> tuple[int, int]:
    """Return the height and width of an image after an mm ``Resize`` step."""
    if not keep_ratio:
        return bounds
    factor = min(max(bounds) / max(size), min(bounds) / min(size))
    return tuple(int(length * factor + 0.5) for length in size)


def fit_edge(size: tuple[int, int], length: int, edge: str) -> tuple[int, int]:
    """Return the height and width of an image after mmpretrain's ``ResizeEdge``."""
    height, width = size
    sides = dict(width=True, height=False, short=width < height, long=width > height)
    if sides[edge]:
        return int(length * height / width), length
    return length, int(length * width / height)


def crop_center(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Crop an image ``(H, W, C)`` as mm's ``CenterCrop``, sides that are longer."""
    lengths = [min(pair) for pair in zip(image.shape, size, strict=False)]
    begins = [round((s - n) / 2) for s, n in zip(image.shape, lengths, strict=False)]
    rows, columns = (slice(b, b + n) for b, n in zip(begins, lengths, strict=True))
    return image[rows, columns]


def resize_image(
    image: np.ndarray,
    size: tuple[int, int],
    backend: str = 'cv2',
    interpolation: str = 'bilinear',
) -> np.ndarray:
    """Resize an 8-bit image ``(H, W, C)``, bit-exact with ``mmcv.imresize``.

    The package of the backend is required, except for OpenCV's bilinear resizing.
    """
    if image.shape[:2] == size:
        return image
    if (backend, interpolation) == ('cv2', 'bilinear'):
        return _resize_bilinear(image, size)
    pixels = image[..., 0] if image.shape[2] == 1 else image
    if backend == 'pillow':
        from PIL import Image

        how = Image.Resampling[interpolation.upper()]
        resized = np.asarray(Image.fromarray(pixels).resize(size[::-1], how))
    else:
        try:
            import cv2
        except ImportError:
            expected = 'bilinear, or pip install opencv-python-headless'
            raise refusal('resize.interpolation', interpolation, expected) from None
        how = getattr(cv2, f'INTER_{OPENCV[interpolation]}')
        pixels = np.ascontiguousarray(pixels)
        resized = cv2.resize(pixels, size[::-1], interpolation=how)
    return resized.reshape(*size, -1)


def _resize_bilinear(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an 8-bit image as ``cv2.resize`` does."""

    def taps(length: int, wanted: int, exact_ends: bool) -> tuple[np.ndarray, ...]:
        scale = 1 / (wanted / length)
        place = ((np.arange(wanted) + 0.5) * scale - 0.5).astype(np.float32)
        begin = np.floor(place).astype(np.intp)
        share = place - begin.astype(np.float32)
        if exact_ends:
            share[(begin < 0) | (begin >= length - 1)] = 0
        neighbours = (i.clip(0, length - 1) for i in (begin, begin + 1))
        weights = (np.rint(x * FIXED).astype(np.int32) for x in (1 - share, share))
        return *neighbours, *weights

    pixels = image.astype(np.int32)
    left, right, a, b = taps(image.shape[1], size[1], True)
    pixels = pixels[:, left] * a[:, None] + pixels[:, right] * b[:, None]
    top, bottom, a, b = taps(image.shape[0], size[0], False)
    a, b, pixels = a[:, None, None], b[:, None, None], pixels >> 4
    pixels = ((pixels[top] * a >> 16) + (pixels[bottom] * b >> 16) + 2) >> 2
    return pixels.clip(0, 255).astype(np.uint8)


def resize_maps(
    maps: np.ndarray, size: tuple[int, int], align_corners: bool
) -> np.ndarray:
    """Resize float32 maps ``(C, H, W)`` as torch's bilinear ``interpolate`` does."""
    for axis in (2, 1):
        length, wanted = maps.shape[axis], size[axis - 1]
        if length == wanted:
            continue
        begin, end, share = _neighbours(length, wanted, align_corners)
        share = share if axis == 2 else share[:, None]
        maps = maps.take(begin, axis) * (1 - share) + maps.take(end, axis) * share
    return maps


def best_class(
    maps: np.ndarray, size: tuple[int, int], align_corners: bool
) -> np.ndarray:
    """Return the argmax over maps ``(C, H, W)`` resized as by :func:`resize_maps`.

    Only a few rows are resized at a time, as full maps often take hundreds of MB.
    """
    wide = resize_maps(maps, (maps.shape[1], size[1]), align_corners)
    begin, end, share = _neighbours(maps.shape[1], size[0], align_corners)
    classes = np.empty(size, np.int64)
    for top in range(0, size[0], 16):
        rows = slice(top, top + 16)
        part = share[rows, None]
        values = wide[:, begin[rows]] * (1 - part) + wide[:, end[rows]] * part
        classes[rows] = values.argmax(0)
    return classes


def _neighbours(length: int, wanted: int, align_corners: bool) -> tuple:
    """Return, per output position, both neighbours and the weight of the second."""
    place = np.arange(wanted, dtype=np.float32)
    if align_corners:
        place *= np.float32((length - 1) / max(wanted - 1, 1))
    elif length != wanted:
        place = (place + np.float32(0.5)) * np.float32(length / wanted)
        place = np.maximum(place - np.float32(0.5), 0)
    begin = place.astype(np.intp).clip(0, length - 1)
    return begin, np.minimum(begin + 1, length - 1), (place - begin).astype(np.float32)


def windows(
    size: tuple[int, int], window: tuple[int, int], stride: tuple[int, int]
) -> Iterator[tuple[slice, slice]]:
    """Yield windows that cover an image, the last ones shifted inwards, as in mmseg."""
    begins = []
    for length, part, step in zip(size, window, stride, strict=True):
        number = -(-max(length - part, 0) // step) + 1
        begins.append([min(i * step, length - part) for i in range(number)])
    for top in begins[0]:
        for left in begins[1]:
            yield slice(top, top + window[0]), slice(left, left + window[1])
