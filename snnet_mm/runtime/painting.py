"""Predictions painted on their images."""

from collections.abc import Sequence

import numpy as np

from .detection import Detections, Panoptic


def paint(
    image: np.ndarray,
    found: np.ndarray | Detections | Panoptic,
    classes: Sequence[str] = (),
    palette: Sequence[Sequence[int]] = (),
    opacity: float = 0.5,
    score_thr: float = 0.3,
) -> np.ndarray:
    """Return an image with its prediction painted on it.

    ``supervision`` paints classes, and objects with outlines, masks, names and scores.
    Depths are painted in grey, near pixels bright; pixels without a finite depth are
    unchanged. For class probabilities, the whole image is.

    Args:
        image: uint8 RGB ``(H, W, 3)``.
        found: Prediction of :class:`StitchRuntime` for the image.
        classes: Names of the classes.
        palette: RGB colours of the classes. Default: those of ``supervision``.
        opacity: Opacity of maps and masks.
        score_thr: Minimum score of drawn objects.
    """
    is_map = isinstance(found, np.ndarray)
    if is_map and found.ndim == 1:
        return image
    if is_map and found.dtype.kind == 'f':
        known = np.isfinite(found)
        farthest = found.max(where=known, initial=1e-6)
        near = 255 * (1 - (found[known] / farthest).clip(0, 1))
        painted = image.copy()
        blend = image[known] * (1 - opacity) + near[:, None] * opacity
        painted[known] = blend.round()
        return painted

    import supervision as sv

    if is_map:
        found = Panoptic(found, None).as_detections(num_classes=-1)
    elif isinstance(found, Panoptic):
        found = found.as_detections(len(classes))
    objects, names = found.to_supervision(), dict(enumerate(classes))
    objects = objects[objects.confidence >= score_thr]
    colours = [sv.Color(*map(int, colour)) for colour in palette]
    color = sv.ColorPalette(colours) if colours else sv.ColorPalette.DEFAULT
    scene = np.ascontiguousarray(image[..., ::-1])  # supervision expects BGR
    if objects.mask is not None:
        scene = sv.MaskAnnotator(color, opacity).annotate(scene, objects)
    if not is_map:
        pairs = zip(objects.class_id.tolist(), objects.confidence, strict=True)
        labels = [f'{names.get(label, label)} {score:.2f}' for label, score in pairs]
        scene = sv.BoxAnnotator(color).annotate(scene, objects)
        scene = sv.LabelAnnotator(color).annotate(scene, objects, labels)
    return scene[..., ::-1]
