"""Random shapes that stand on a plain: pictures with exact ground truth.

A pinhole camera looks over flat ground towards hills and a sky. The row of an object's
foot determines its depth, and the depth scales its size. Nearer objects occlude farther
ones.
"""

from dataclasses import dataclass

import cv2
import numpy as np

CLASSES = ('sky', 'ground', 'disk', 'box', 'triangle', 'bar')
SKY, GROUND, DISK, BOX, TRIANGLE, BAR = range(len(CLASSES))
TEXTURES = ('plain', 'stripes', 'checker', 'noise')
# Textures hint at classes: TEXTURE_OF is used at this rate, else a random texture.
TEXTURE_OF = {DISK: 'stripes', BOX: 'checker', TRIANGLE: 'noise', BAR: 'plain'}
TEXTURE_RATE = 0.8

Size = tuple[int, int]

SKY_DEPTH = 80.0  # metres
MAX_GROUND_DEPTH = 40.0  # metres
FEET = 0.2, 0.95  # minimum and maximum fraction of the height below the horizon
CAMERA_HEIGHT = 1.6  # metres; the focal length is the height of the image


@dataclass
class Scene:
    """A drawn scene; objects are ordered from far to near."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    semantic: np.ndarray  # (H, W) uint8, indices into CLASSES
    depth: np.ndarray  # (H, W) float32, metres
    labels: list[int]  # class of each object
    masks: np.ndarray  # (N, H, W) bool, visible pixels of each object


def draw_scene(
    rng: np.random.Generator,
    size: Size,
    num_objects: tuple[int, int],
    feet: tuple[float, float] = FEET,
    grey: bool = False,
) -> Scene:
    """Draw a scene of ``size`` (H, W) with a random number of objects.

    ``num_objects`` is their minimum and maximum number. ``feet`` is the range of the
    rows that they stand in, as fractions of the height below the horizon. If ``grey``,
    everything but the objects is grey.
    """
    height, width = size
    horizon = height * rng.uniform(0.3, 0.5)
    haze = rng.uniform(150, 230, 3)
    image, semantic, depth = _draw_surfaces(rng, size, horizon, haze)
    if grey:
        image = np.repeat(image.mean(2, keepdims=True), 3, axis=2)
    # Uniform in the row of the foot, so that few objects are far away and tiny.
    count = rng.integers(num_objects[0], num_objects[1] + 1)
    feet = np.sort(rng.uniform(*feet, count)) * (height - horizon)
    labels = rng.integers(DISK, BAR + 1, count).tolist()
    owner = np.full(size, -1)
    for index, (label, below) in enumerate(zip(labels, feet, strict=True)):
        length = max(rng.uniform(1, 2) * below / CAMERA_HEIGHT, 5)  # pixels
        x = width * rng.uniform(0.05, 0.95)
        mask = _outline(rng, label, length, x, horizon + below, size)
        distance = CAMERA_HEIGHT * height / below
        own = rng.random() < TEXTURE_RATE
        texture = TEXTURE_OF[label] if own else rng.choice(TEXTURES)
        colour = _texture(rng, texture, max(length * 0.16, 2), size)
        colour += (haze - colour) * (distance / SKY_DEPTH)
        image[mask], owner[mask] = colour[mask], index
        semantic[mask], depth[mask] = label, distance
    masks = owner == np.arange(count)[:, None, None]
    light = rng.uniform(0.6, 1) + 0.3 * _smooth_noise(rng, size, 2, 2)
    noise = rng.normal(0, rng.uniform(2, 14), image.shape)
    exposed = np.clip(image * light[..., None] + noise, 0, 255).astype(np.uint8)
    return Scene(exposed, semantic, depth, labels, masks)


def _smooth_noise(rng: np.random.Generator, size: Size, *cells: int) -> np.ndarray:
    return cv2.resize(rng.random(cells), size[::-1], interpolation=cv2.INTER_LINEAR)


def _draw_surfaces(
    rng: np.random.Generator, size: Size, horizon: float, haze: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw sky and ground: an image (H, W, 3) float, classes and depths (H, W)."""
    height, _ = size
    rows = np.arange(height)[:, None] + 0.5
    below = np.maximum(rows - horizon, CAMERA_HEIGHT * height / MAX_GROUND_DEPTH)
    distance = np.broadcast_to(CAMERA_HEIGHT * height / below, size)
    hills = _smooth_noise(rng, size, 1, 5) * rng.uniform(0, 0.15) * height
    is_ground = rows > horizon - hills

    zenith, low, cloud, first, second = rng.uniform(
        [[110]] * 3 + [[40]] * 2, [[240]] * 3 + [[200]] * 2, (5, 3)
    )
    cover = _smooth_noise(rng, size, 7, 4)[..., None] * rng.uniform(0, 0.9)
    sky = zenith + (low - zenith) * np.minimum(rows / horizon, 1)[..., None]
    sky = sky + (cloud - sky) * cover
    ground = first + (second - first) * _smooth_noise(rng, size, 9, 6)[..., None]
    ground += (haze - ground) * (distance / SKY_DEPTH)[..., None]
    semantic = np.where(is_ground, GROUND, SKY).astype(np.uint8)
    depth = np.where(is_ground, distance, SKY_DEPTH).astype(np.float32)
    return np.where(is_ground[..., None], ground, sky), semantic, depth


def _outline(
    rng: np.random.Generator, label: int, length: float, x: float, y: float, size: Size
) -> np.ndarray:
    """Draw the mask (H, W) of an object that stands at (x, y), in pixels."""
    mask = np.zeros(size, np.uint8)
    if label == DISK:
        points = cv2.ellipse2Poly((0, 0), (1000, 1000), 0, 0, 360, 10) / 1000
        corners = points * length / 2 + (x, y - length / 2)
    else:
        half, lean = length * rng.uniform(0.4, 0.6), length * rng.uniform(-0.2, 0.2)
        if label == BAR:
            length *= 1.6
            half, lean = length / rng.uniform(6, 11), 2 * lean
        top = 0 if label == TRIANGLE else half
        columns = x - half, x + half, x + lean + top, x + lean - top
        corners = np.stack([columns, (y, y, y - length, y - length)], axis=1)
    # With shift=4, OpenCV reads sixteenths of a pixel.
    cv2.fillConvexPoly(mask, np.rint(corners * 16).astype(np.int32), 1, shift=4)
    return mask.astype(bool)


def _texture(
    rng: np.random.Generator, kind: str, period: float, size: Size
) -> np.ndarray:
    row, column = (np.indices(size) / period).astype(int)
    mix = dict(plain=np.zeros(size), checker=(row + column) % 2)
    mix['stripes'] = (column if rng.random() < 0.5 else row) % 2
    mix['noise'] = rng.random(size)
    first, second = rng.uniform(20, 255, (2, 3))
    return first + (second - first) * mix[kind][..., None]
