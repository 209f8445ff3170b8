"""Random striped shapes that stand on a plain: pictures with exact ground truth.

A pinhole camera looks over flat ground. The row of an object's foot determines its
depth, and the depth scales its size. Nearer objects occlude farther ones.
"""

from dataclasses import dataclass

import cv2
import numpy as np

CLASSES = ('sky', 'ground', 'disk', 'box', 'triangle')
SKY, GROUND, DISK, BOX, TRIANGLE = range(len(CLASSES))
# Mean colours of the classes, BGR, and the largest deviation in each channel.
COLORS = np.array(
    [(225, 170, 100), (60, 115, 95), (60, 60, 220), (180, 80, 160), (50, 200, 230)]
)
DEVIATION = 60
MAX_DEPTH = 20.0  # metres; that of the sky, too
CAMERA_HEIGHT = 1.6  # metres; the focal length is the height of the image
FEET = 0.5, 0.95  # range of objects' feet, as fractions of the height below the horizon
LENGTHS = 1.4, 2.2  # range of objects' heights, metres


@dataclass
class Scene:
    """A drawn scene; objects are ordered from far to near."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    semantic: np.ndarray  # (H, W) uint8, indices into CLASSES
    depth: np.ndarray  # (H, W) float32, metres
    labels: list[int]  # class of each object
    masks: np.ndarray  # (N, H, W) bool, visible pixels of each object


def draw_scene(
    rng: np.random.Generator, size: tuple[int, int], num_objects: tuple[int, int]
) -> Scene:
    """Draw a scene of ``size`` (H, W) with a random number of objects.

    ``num_objects`` is their minimum and maximum number.
    """
    height, width = size
    horizon = height * rng.uniform(0.3, 0.45)
    scale = CAMERA_HEIGHT * height  # depth times rows below the horizon
    rows = np.arange(height, dtype=np.float32)[:, None] + 0.5 - horizon
    count = rng.integers(*num_objects, endpoint=True)
    labels = rng.integers(DISK, len(CLASSES), count).tolist()
    feet = np.sort(rng.uniform(*FEET, count)) * (height - horizon)
    colors = COLORS[[SKY, GROUND, *labels]]
    colors = colors + rng.uniform(-DEVIATION, DEVIATION, colors.shape)

    owner = np.repeat((rows > 0) * 1, width, axis=1)  # index into colors
    depth = np.repeat(scale / np.maximum(rows, scale / MAX_DEPTH), width, axis=1)
    light = 1 + 0.2 * np.repeat(np.abs(rows) / height, width, axis=1)
    for index, (label, below) in enumerate(zip(labels, feet, strict=True), start=2):
        length = rng.uniform(*LENGTHS) * below / CAMERA_HEIGHT  # pixels
        x = width * rng.uniform(0.1, 0.9)
        mask = _outline(label, length, x, horizon + below, size)
        stripes = (np.arange(width) - x) * 8 // length % 2
        owner[mask], depth[mask] = index, scale / below
        light[mask] = np.broadcast_to(1 - 0.35 * stripes, size)[mask]
    noise = 4 * rng.standard_normal((*size, 3), np.float32)
    image = (colors.astype(np.float32)[owner] * light[..., None] + noise).clip(0, 255)
    semantic = np.array([SKY, GROUND, *labels], np.uint8)[owner]
    masks = owner == np.arange(2, 2 + count)[:, None, None]
    return Scene(image.astype(np.uint8), semantic, depth, labels, masks)


def _outline(
    label: int, length: float, x: float, y: float, size: tuple[int, int]
) -> np.ndarray:
    """Draw the mask (H, W) of an object that stands at (x, y), in pixels."""
    mask, half = np.zeros(size, np.uint8), length / 2
    if label == DISK:
        points = cv2.ellipse2Poly((0, 0), (1000, 1000), 0, 0, 360, 10) / 1000
        corners = points * half + (x, y - half)
    else:
        top = half if label == BOX else 0
        columns = x + half, x + top, x - top, x - half
        corners = np.stack([columns, (y, y - length, y - length, y)], axis=1)
    # With shift=4, OpenCV reads sixteenths of a pixel.
    cv2.fillConvexPoly(mask, np.rint(corners * 16).astype(np.int32), 1, shift=4)
    return mask.astype(bool)
