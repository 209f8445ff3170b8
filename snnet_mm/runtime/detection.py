"""Boxes and masks from the graphs of a detector's heads, as mmdet chooses them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .bundle import Run

if TYPE_CHECKING:
    import supervision


class Detections(NamedTuple):
    """Objects of an image, sorted by score.

    ``boxes`` are ``(n, 4)``, left, top, right and bottom in pixels of the image,
    ``scores`` and ``labels`` ``(n,)``, ``masks`` bool ``(n, H, W)`` or None.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None

    def to_supervision(self) -> 'supervision.Detections':
        """Return the objects for ``supervision``, which draws, tracks and counts."""
        import supervision

        found = dict(xyxy=self.boxes, confidence=self.scores, class_id=self.labels)
        return supervision.Detections(mask=self.masks, **found)


def detect(
    maps: Sequence[np.ndarray],
    steps: Mapping[str, Mapping],
    open_head: Callable[[str], Run],
    size: tuple[int, int],
    resized: tuple[int, int],
) -> Detections:
    """Predict the objects of an image of a size, which was resized for the maps."""
    heads = {name: open_head(step['graph']) for name, step in steps.items()}
    sides = np.float32([resized[1], resized[0]] * 2)
    boxes, scores = heads['proposals'](*maps)
    boxes = _propose(np.clip(boxes, 0, sides), scores, steps['proposals'])
    boxes, scores = heads['boxes'](*maps, boxes)
    boxes, scores, labels = _choose(np.clip(boxes, 0, sides), scores, steps['boxes'])
    found = boxes / (sides / np.float32([size[1], size[0]] * 2)).astype(np.float32)
    if 'masks' not in steps:
        return Detections(found, scores, labels, None)
    masks, above = np.zeros((len(found), *size), bool), steps['masks']['above']
    inside = heads['masks'](*maps, boxes)[0]
    for whole, box, label, parts in zip(masks, found, labels, inside, strict=True):
        _paste(whole, box, parts[min(label, len(parts) - 1)], above)
    return Detections(found, scores, labels, masks)


def suppress(
    boxes: np.ndarray, scores: np.ndarray, groups: np.ndarray, iou: float
) -> np.ndarray:
    """Return the indices of the boxes that NMS keeps, sorted by score.

    Boxes of other groups are moved apart, as in mmcv's batched NMS.
    """
    order = np.argsort(-scores, kind='stable')
    away = groups.astype(np.float32) * (boxes.max(initial=0) + np.float32(1))
    left, top, right, bottom = (boxes + away[:, None])[order].T
    areas, kept = (right - left) * (bottom - top), []
    rest = np.arange(len(order))
    while len(rest):
        first, rest = rest[0], rest[1:]
        kept.append(first)
        width = np.minimum(right[rest], right[first])
        width = np.maximum(width - np.maximum(left[rest], left[first]), 0)
        height = np.minimum(bottom[rest], bottom[first])
        height = np.maximum(height - np.maximum(top[rest], top[first]), 0)
        common = width * height
        with np.errstate(invalid='ignore'):  # boxes without an area
            overlap = common / (areas[first] + areas[rest] - common)
        rest = rest[~(overlap > iou)]
    return order[kept]


def _propose(boxes: np.ndarray, scores: np.ndarray, step: Mapping) -> np.ndarray:
    levels = np.repeat(np.arange(len(step['levels'])), step['levels'])
    kept, most = np.argsort(-scores, kind='stable'), step['per_level']
    own = [kept[levels[kept] == level] for level in range(len(step['levels']))]
    kept = np.concatenate([level[: most if most > 0 else None] for level in own])
    if step['larger_than'] >= 0:
        sides = boxes[kept, 2:] - boxes[kept, :2]
        kept = kept[(sides > step['larger_than']).all(1)]
    best = suppress(boxes[kept], scores[kept], levels[kept], step['iou'])
    return boxes[kept[best[: step['number']]]]


def _choose(boxes: np.ndarray, scores: np.ndarray, step: Mapping) -> tuple:
    """Choose among all classes of all proposals; the background is no class."""
    scores = scores[:, :-1]
    row, label = np.nonzero(scores > step['above'])
    boxes = boxes[row, np.minimum(label, boxes.shape[1] - 1)]
    scores = scores[row, label]
    best, most = suppress(boxes, scores, label, step['iou']), step['number']
    best = best[: most if most > 0 else None]
    return boxes[best], scores[best], label[best]


def _paste(whole: np.ndarray, box: np.ndarray, part: np.ndarray, above: float) -> None:
    """Draw the mask of a box, between whose pixels it is linear, into an image."""
    spans, weights = [], []
    for axis, length in enumerate(part.shape):
        low, high = box[1 - axis], box[3 - axis]
        begin = max(int(np.floor(low)) - 1, 0)
        end = min(int(np.ceil(high)) + 1, whole.shape[axis])
        with np.errstate(divide='ignore', invalid='ignore'):
            place = (np.arange(begin, end, dtype=np.float32) + 0.5 - low) / (high - low)
        place = np.where(np.isfinite(place), place, 0.5) * length - 0.5
        distance = np.abs(place[:, None] - np.arange(length))
        weights.append(np.maximum(1 - distance, 0).astype(np.float32))
        spans.append(slice(begin, end))
    whole[tuple(spans)] = weights[0] @ part @ weights[1].T >= above
