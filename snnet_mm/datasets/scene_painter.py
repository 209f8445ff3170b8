"""Paints small seeded outdoor scenes with NumPy alone.

A pinhole camera looks over flat ground towards hills and a sky. Objects stand on the
ground, so the row of an object's foot tells its depth and its depth scales its size.
They are painted far to near: the nearer one hides the farther one.

Arrays go only through operations that IEEE 754 rounds in one way (+, -, *, /, floor,
comparisons; no sine, no exponential, no sum over an axis), and random numbers only
through ``Generator.random`` and full-range bytes. The same generator state therefore
paints the same scene on every machine.
"""

from dataclasses import dataclass

import numpy as np

CLASSES = ('sky', 'ground', 'disk', 'box', 'triangle', 'bar')
SKY, GROUND, DISK, BOX, TRIANGLE, BAR = range(len(CLASSES))
TEXTURES = ('plain', 'striped', 'checker', 'noisy')
# The texture hints at the class: an object wears its class's own one this often.
FAVOURITE = {DISK: 'striped', BOX: 'checker', TRIANGLE: 'noisy', BAR: 'plain'}
FAVOURITE_RATE = 0.8

SKY_DEPTH = 80.0  # metres; stands for "very far", so that no depth is infinite
HILL_DEPTH = 40.0  # metres, the farthest ground
CAMERA_HEIGHT = 1.6  # metres above the ground; the focal length is the image height
MIN_LENGTH = 5.0  # pixels, so that an object always covers some pixel's centre
MIN_THICKNESS = 2.0  # pixels, the same for bars


@dataclass
class Instance:
    """One object of a scene.

    Attributes:
        label: Index into :data:`CLASSES`.
        depth: Distance in metres, the same for all of its pixels.
        mask: (H, W) bool, the whole object inside the frame, hidden parts included.
        visible: (H, W) bool, the part that no nearer object hides; may be empty.
    """

    label: int
    depth: float
    mask: np.ndarray
    visible: np.ndarray

    @property
    def bbox(self) -> tuple[int, int, int, int]:
        """Box around ``mask``; see :func:`box_around`."""
        return box_around(self.mask)


@dataclass
class Scene:
    """A painted scene with everything that is known about it.

    Attributes:
        image: (H, W, 3) uint8, BGR.
        semantic: (H, W) uint8, indices into :data:`CLASSES`.
        depth: (H, W) float32, metres.
        instances: The objects, far to near.
    """

    image: np.ndarray
    semantic: np.ndarray
    depth: np.ndarray
    instances: list[Instance]


@dataclass
class _Plan:
    """What is decided about an object before it is painted; lengths in pixels."""

    label: int
    texture: str
    depth: float  # metres
    centre: float
    foot: float  # the row on which it stands
    half_width: float
    height: float
    lean: float  # how far its top is shifted, in half widths
    period: float  # of its texture
    colours: np.ndarray  # (2, 3) BGR


@dataclass
class _Canvas:
    """The scene while it is painted."""

    image: np.ndarray  # (H, W, 3) float32
    semantic: np.ndarray
    depth: np.ndarray
    owner: np.ndarray  # (H, W) int16: the object seen at a pixel, -1 for none
    haze: np.ndarray  # (3,) the colour into which distant things fade
    sun: float  # where the light comes from: -1 left, 1 right


def box_around(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Box around a mask (H, W) as (x1, y1, x2, y2), x2 and y2 exclusive."""
    rows = np.flatnonzero(mask.any(axis=1))
    columns = np.flatnonzero(mask.any(axis=0))
    x1, x2 = int(columns[0]), int(columns[-1]) + 1
    return x1, int(rows[0]), x2, int(rows[-1]) + 1


def paint_scene(
    rng: np.random.Generator, size: tuple[int, int], num_objects: tuple[int, int]
) -> Scene:
    """Paint one scene.

    Args:
        rng: Source of every decision.
        size: (H, W) in pixels.
        num_objects: Least and greatest number of objects, both included.

    Returns:
        The scene. All its arrays are (H, W, ...), as described at :class:`Scene`.
    """
    horizon = size[0] * _uniform(rng, 0.3, 0.5)
    canvas = _paint_surfaces(rng, size, horizon)
    count = _choose(rng, range(num_objects[0], num_objects[1] + 1))
    plans = [_plan_object(rng, size, horizon) for _ in range(count)]
    plans.sort(key=lambda plan: plan.depth, reverse=True)
    masks = [
        _paint_object(rng, canvas, plan, index) for index, plan in enumerate(plans)
    ]
    instances = [
        Instance(plan.label, plan.depth, mask, canvas.owner == index)
        for index, (plan, mask) in enumerate(zip(plans, masks, strict=True))
    ]
    return Scene(_expose(rng, canvas), canvas.semantic, canvas.depth, instances)


def _uniform(rng: np.random.Generator, low: float, high: float) -> float:
    # Not rng.uniform: its C code may fuse the product and the sum on some machines.
    return low + (high - low) * rng.random()


def _choose(rng: np.random.Generator, options):
    return options[int(rng.random() * len(options))]


def _colour(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    return low + (high - low) * rng.random(3, dtype=np.float32)


def _lattice_weights(length: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Cell index and smooth weight of every pixel along one axis."""
    position = (np.arange(length, dtype=np.float32) + 0.5) * (cells / length)
    cell = position.astype(np.intp)
    offset = position - cell
    return cell, offset * offset * (3 - 2 * offset)


def _smooth_noise(
    rng: np.random.Generator, size: tuple[int, int], cells: tuple[int, int]
) -> np.ndarray:
    """Value noise: random numbers on a coarse lattice, blended; (H, W) in [0, 1)."""
    lattice = rng.random((cells[0] + 1, cells[1] + 1), dtype=np.float32)
    row, weight = _lattice_weights(size[0], cells[0])
    lattice = lattice[row] + (lattice[row + 1] - lattice[row]) * weight[:, None]
    column, weight = _lattice_weights(size[1], cells[1])
    left = lattice[:, column]
    return left + (lattice[:, column + 1] - left) * weight


def _texture(
    rng: np.random.Generator, kind: str, u: np.ndarray, v: np.ndarray
) -> np.ndarray:
    """How much of the second colour each place gets, in [0, 1].

    Args:
        rng: Draws the direction of stripes and the grains of noise.
        kind: One of :data:`TEXTURES`.
        u: Horizontal place in texture periods, broadcast against ``v``.
        v: Vertical place in texture periods.
    """
    if kind == 'plain':
        return np.zeros(np.broadcast_shapes(u.shape, v.shape), np.float32)
    if kind == 'noisy':
        return rng.random(np.broadcast_shapes(u.shape, v.shape), dtype=np.float32)
    if kind == 'striped':
        across, up = _choose(rng, ((1, 0), (0, 1), (0.7, 0.7), (0.7, -0.7)))
        bands = np.floor(u * across + v * up)
    else:
        bands = np.floor(u) + np.floor(v)
    return (bands.astype(np.int32) & 1).astype(np.float32)


def _paint_surfaces(
    rng: np.random.Generator, size: tuple[int, int], horizon: float
) -> _Canvas:
    """Paint sky, hills and ground.

    Args:
        rng: Source of every decision.
        size: (H, W) in pixels.
        horizon: The row, in pixels, in which flat ground would end.
    """
    height, width = size
    rows = (np.arange(height, dtype=np.float32) + 0.5)[:, None]
    below = np.maximum(rows - horizon, CAMERA_HEIGHT * height / HILL_DEPTH)
    distance = CAMERA_HEIGHT * height / below  # (H, 1)
    hills = _smooth_noise(rng, (1, width), (1, 4)) * _uniform(rng, 0, 0.15 * height)
    is_ground = rows > horizon - hills

    sky = _paint_sky(rng, size, rows / horizon)
    ground, haze = _paint_ground(rng, size, distance), _colour(rng, 150, 230)
    ground += (haze - ground) * (distance / SKY_DEPTH)[..., None]
    return _Canvas(
        image=np.where(is_ground[..., None], ground, sky),
        semantic=np.where(is_ground, np.uint8(GROUND), np.uint8(SKY)),
        depth=np.where(is_ground, distance, np.float32(SKY_DEPTH)),
        owner=np.full(size, -1, np.int16),
        haze=haze,
        sun=_uniform(rng, -1, 1),
    )


def _paint_sky(
    rng: np.random.Generator, size: tuple[int, int], elevation: np.ndarray
) -> np.ndarray:
    """A gradient from the zenith to the horizon with clouds; (H, W, 3) float32."""
    zenith, low, cloud = (_colour(rng, 110, 240) for _ in range(3))
    sky = zenith + (low - zenith) * np.minimum(elevation, 1)[..., None]
    cover = _smooth_noise(rng, size, (6, 3)) * _uniform(rng, 0, 0.9)
    return sky + (cloud - sky) * cover[..., None]


def _paint_ground(
    rng: np.random.Generator, size: tuple[int, int], distance: np.ndarray
) -> np.ndarray:
    """Textured flat ground seen in perspective; (H, W, 3) float32."""
    height, width = size
    across = np.arange(width, dtype=np.float32) + (0.5 - width / 2)
    tile = _uniform(rng, 0.7, 1.6)  # metres
    u, v = across * distance * (1 / (height * tile)), distance * (1 / tile)
    mix = _texture(rng, _choose(rng, TEXTURES), u, v)
    # Far tiles are smaller than a pixel: fade them out before they alias.
    mix = mix * (_uniform(rng, 0.4, 1) * np.maximum(1 - distance / 16, 0))
    mix = mix + 0.3 * _smooth_noise(rng, size, (8, 5))
    first, second = _colour(rng, 40, 200), _colour(rng, 40, 200)
    return first + (second - first) * mix[..., None]


def _plan_object(
    rng: np.random.Generator, size: tuple[int, int], horizon: float
) -> _Plan:
    """Decide everything about one object.

    Places are uniform in the row of the foot, that is in inverse depth: few objects
    are far away and tiny.
    """
    height, width = size
    label = _choose(rng, (DISK, BOX, TRIANGLE, BAR))
    below = (height - horizon) * _uniform(rng, 0.2, 0.95)  # rows under the horizon
    pixels_per_metre = below / CAMERA_HEIGHT
    length = max(_uniform(rng, 1.0, 2.0) * pixels_per_metre, MIN_LENGTH)
    half_width, tall, lean = _proportions(rng, label, length)
    favoured = rng.random() < FAVOURITE_RATE
    return _Plan(
        label=label,
        texture=FAVOURITE[label] if favoured else _choose(rng, TEXTURES),
        depth=CAMERA_HEIGHT * height / below,
        centre=width * _uniform(rng, 0.05, 0.95),
        foot=horizon + below,
        half_width=half_width,
        height=tall,
        lean=lean,
        period=max(length * _uniform(rng, 0.12, 0.2), 2.0),
        colours=np.stack([_colour(rng, 20, 255), _colour(rng, 20, 255)]),
    )


def _proportions(
    rng: np.random.Generator, label: int, length: float
) -> tuple[float, float, float]:
    """Half width and height in pixels, and lean in half widths.

    A box and a bar have the same outline and differ in their proportions alone.
    """
    if label == DISK:
        return length / 2, length, 0.0
    if label == BOX:
        return length * _uniform(rng, 0.4, 0.6), length, _uniform(rng, -0.3, 0.3)
    if label == TRIANGLE:
        length = 1.2 * length
        return length * _uniform(rng, 0.5, 0.65), length, _uniform(rng, -0.6, 0.6)
    length = 1.6 * length
    thickness = max(length / _uniform(rng, 3.0, 5.5), MIN_THICKNESS)
    if rng.random() < 0.3:  # it lies on the ground
        return length / 2, thickness, 0.0
    return thickness / 2, length, _uniform(rng, -0.5, 0.5) * length / (thickness / 2)


def _outline(plan: _Plan, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Which places belong to the object.

    Args:
        plan: The object.
        u: (1, w) place to the right of its centre, in half widths.
        v: (h, 1) place above its foot, in heights.

    Returns:
        (h, w) bool.
    """
    if plan.label == DISK:
        return u * u + (2 * v - 1) * (2 * v - 1) <= 1
    half = 1 - v if plan.label == TRIANGLE else 1
    return (np.abs(u - plan.lean * v) <= half) & (v >= 0) & (v <= 1)


def _window(
    shape: tuple[int, int], centre: float, foot: float, reach: tuple[float, ...]
) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray]:
    """The part of the frame around a place.

    Args:
        shape: (H, W) of the frame.
        centre: Column of the place.
        foot: Row of the place.
        reach: How far the window goes left, right, up and down, in pixels.

    Returns:
        The window (h, w) as slices, and how far its pixels lie right of the place
        (1, w) and above it (h, 1), in pixels.
    """
    left, right, up, down = reach
    x1, x2 = max(int(centre - left), 0), min(int(centre + right) + 1, shape[1])
    y1, y2 = max(int(foot - up), 0), min(int(foot + down) + 1, shape[0])
    x = np.arange(x1, x2, dtype=np.float32)[None] + (0.5 - centre)
    y = (foot - 0.5) - np.arange(y1, y2, dtype=np.float32)[:, None]
    return (slice(y1, y2), slice(x1, x2)), x, y


def _paint_object(
    rng: np.random.Generator, canvas: _Canvas, plan: _Plan, index: int
) -> np.ndarray:
    """Paint an object over everything that is there; returns its (H, W) bool mask."""
    shift = plan.half_width * plan.lean
    left, right = plan.half_width + max(-shift, 0), plan.half_width + max(shift, 0)
    reach = (left, right, plan.height, 0)
    window, x, y = _window(canvas.owner.shape, plan.centre, plan.foot, reach)
    u, v = x * (1 / plan.half_width), y * (1 / plan.height)
    inside = _outline(plan, u, v)

    _paint_shadow(canvas, plan)
    mix = _texture(rng, plan.texture, x * (1 / plan.period), y * (1 / plan.period))
    first, second = plan.colours
    colour = first + (second - first) * mix[..., None]
    colour *= _shade(canvas, plan, u, v)[..., None]
    colour += (canvas.haze - colour) * (plan.depth / SKY_DEPTH)
    canvas.image[window][inside] = colour[inside]
    canvas.semantic[window][inside] = plan.label
    canvas.depth[window][inside] = plan.depth
    canvas.owner[window][inside] = index
    mask = np.zeros(canvas.owner.shape, bool)
    mask[window] = inside
    return mask


def _shade(canvas: _Canvas, plan: _Plan, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Brightness of each place of an object; broadcasts to (h, w)."""
    if plan.label == DISK:  # round: darker away from the point that faces the sun
        off_u, off_v = u - 0.5 * canvas.sun, 2 * v - 1.4
        return 1.15 - 0.25 * (off_u * off_u + off_v * off_v)
    return (0.8 + 0.25 * v) + 0.15 * canvas.sun * np.clip(u, -1, 1)


def _paint_shadow(canvas: _Canvas, plan: _Plan) -> None:
    """Darken the ground around an object's foot; other objects stay as they are."""
    across = plan.half_width * 1.3 + 1
    deep = 0.25 * min(plan.half_width, plan.height) + 1
    reach = (across, across, deep, deep)
    window, x, y = _window(canvas.owner.shape, plan.centre, plan.foot, reach)
    u, v = x * (1 / across), y * (1 / deep)
    dark = np.maximum(1 - u * u - v * v, 0)
    dark *= canvas.semantic[window] == GROUND
    canvas.image[window] *= (1 - 0.6 * dark)[..., None]


def _expose(rng: np.random.Generator, canvas: _Canvas) -> np.ndarray:
    """Take the picture: uneven light and sensor noise; (H, W, 3) uint8."""
    height, width = canvas.owner.shape
    light = _uniform(rng, 0.75, 1.1)
    x = (np.arange(width, dtype=np.float32) - width / 2) * (1 / width)
    y = (np.arange(height, dtype=np.float32) - height / 2) * (1 / height)
    slope_x, slope_y = _uniform(rng, -0.4, 0.4), _uniform(rng, -0.3, 0.3)
    light = (light + slope_x * x) + (slope_y * y)[:, None]
    image = canvas.image * light[..., None]
    grains = rng.integers(0, 256, image.shape, dtype=np.uint8)
    image += (grains - np.float32(127.5)) * (_uniform(rng, 4, 24) / 127.5)
    return np.clip(image + 0.5, 0, 255).astype(np.uint8)
