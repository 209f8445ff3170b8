"""Predictions painted on their images."""

import colorsys
from collections.abc import Sequence

import numpy as np

from .detections import Detections, Panoptic

GOLDEN = 0.618  # hue step between classes, as a fraction of the circle


def paint(
    image: np.ndarray,
    found: np.ndarray | Detections | Panoptic,
    classes: Sequence[str] = (),
    palette: Sequence[Sequence[int]] = (),
    opacity: float = 0.5,
    score_thr: float = 0.3,
) -> np.ndarray:
    """Return an image with its prediction painted on it.

    ``supervision`` draws objects with outlines, masks, names and scores. Depths are
    painted in grey, near pixels bright; pixels without a finite depth are unchanged.
    For class probabilities, the whole image is.

    Args:
        image: uint8 RGB ``(H, W, 3)``.
        found: Prediction of :class:`StitchRuntime` for the image.
        classes: Names of the classes.
        palette: RGB colours of the classes. Default: generated hues.
        opacity: Opacity of maps and masks.
        score_thr: Minimum score of drawn objects.
    """
    if isinstance(found, Panoptic):
        found = found.as_detections(len(classes))
    if isinstance(found, Detections):
        kept = found.scores >= score_thr
        found = Detections(*(None if x is None else x[kept] for x in found))
        return _paint_objects(image, found, classes, palette, opacity)
    if found.ndim == 1:
        return image
    if found.dtype.kind == 'f':
        known = np.isfinite(found)
        farthest = found.max(where=known, initial=1e-6)
        near = 255 * (1 - (found[known] / farthest).clip(0, 1))
        painted = image.copy()
        painted[known] = _blend(image[known], near[:, None], opacity)
        return painted
    colours = _colours(palette, int(found.max()) + 1)
    return _blend(image, colours[found], opacity)


def _colours(palette: Sequence[Sequence[int]], number: int) -> np.ndarray:
    """Return RGB colours ``(classes, 3)``: the palette, then generated hues."""
    hues = (colorsys.hsv_to_rgb(GOLDEN * i % 1, 0.8, 1) for i in range(number))
    colours = (255 * np.array([*hues]).reshape(-1, 3)).astype(np.uint8)
    given = np.array(palette, np.uint8).reshape(-1, 3)
    colours[: len(given)] = given[:number]
    return colours


def _blend(image: np.ndarray, above: np.ndarray, opacity: float) -> np.ndarray:
    return (image * (1 - opacity) + above * opacity).round().astype(np.uint8)


def _paint_objects(
    image: np.ndarray,
    found: Detections,
    classes: Sequence[str],
    palette: Sequence[Sequence[int]],
    opacity: float,
) -> np.ndarray:
    import supervision as sv

    colours = _colours(palette, max([len(classes), *(found.labels + 1)]))
    color = sv.ColorPalette([sv.Color(*map(int, colour)) for colour in colours])
    objects, names = found.to_supervision(), dict(enumerate(classes))
    scene = np.ascontiguousarray(image[..., ::-1])  # supervision expects BGR
    if found.masks is not None:
        scene = sv.MaskAnnotator(color, opacity).annotate(scene, objects)
    scene = sv.BoxAnnotator(color).annotate(scene, objects)
    labels = [
        f'{names.get(int(label), label)} {score:.2f}'
        for label, score in zip(found.labels, found.scores, strict=True)
    ]
    return sv.LabelAnnotator(color).annotate(scene, objects, labels)[..., ::-1]
