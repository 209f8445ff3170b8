"""Objects and segments from the outputs of a detector's graph, as in mmdet."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .resizing import resize_maps

if TYPE_CHECKING:
    import supervision


OFFSET = 1000  # factor of instance numbers in mmdet's panoptic segments


class Detections(NamedTuple):
    """Objects of an image, sorted by score.

    ``boxes`` ``(n, 4)`` are left, top, right and bottom in pixels of the image.
    ``scores`` and ``labels`` are ``(n,)``, ``masks`` bool ``(n, H, W)`` or None.
    """

    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    masks: np.ndarray | None

    def to_supervision(self) -> 'supervision.Detections':
        """Convert the objects for ``supervision``, which draws, tracks and counts."""
        import supervision

        found = dict(xyxy=self.boxes, confidence=self.scores, class_id=self.labels)
        return supervision.Detections(mask=self.masks, **found)


class Panoptic(NamedTuple):
    """The segments of an image, and its objects if the model also predicts them.

    ``segments`` ``(H, W)`` are class indices; things add 1000 times their instance
    number, counted from 1. Pixels without a segment are set to the number of classes.
    """

    segments: np.ndarray
    objects: Detections | None

    def as_detections(self, num_classes: int) -> Detections:
        """Return the objects or, if not predicted, all segments with a score of 1."""
        if self.objects is not None:
            return self.objects
        ids = np.unique(self.segments)
        ids = ids[ids != num_classes]
        masks = self.segments == ids[:, None, None]
        boxes = np.float32([box_of(mask) for mask in masks]).reshape(-1, 4)
        return Detections(boxes, np.ones(len(ids), np.float32), ids % OFFSET, masks)


def place(
    found: Sequence[np.ndarray],
    step: Mapping,
    size: tuple[int, int],
    factors: Sequence[float],
    within: tuple[int, int],
) -> Detections | Panoptic | None:
    """Place the objects of a graph in their image, as the graph's step specifies.

    The image has the height and width ``size``. It was resized by ``factors`` (x, y) to
    ``within``, and may have been padded.
    """
    if step['step'] == 'segments':
        return _place_segments(found, step, size, within)
    number = (found[1] >= 0).sum()
    boxes, scores, labels, *inside = (x[:number] for x in found)
    boxes, labels = boxes / np.tile(np.float32(factors), 2), labels.astype(int)
    if step['above'] is None:
        return Detections(boxes, scores, labels, None)
    masks = np.zeros((number, *size), bool)
    for mask, box, part in zip(masks, boxes, *inside, strict=True):
        _paste(mask, box, part, step['above'])
    return Detections(boxes, scores, labels, masks)


def _place_segments(
    found: Sequence[np.ndarray],
    step: Mapping,
    size: tuple[int, int],
    within: tuple[int, int],
) -> Detections | Panoptic | None:
    scores, labels, masks = found[0], found[1].astype(int), found[2]
    masks, objects = masks[:, : within[0], : within[1]], None
    if step['number'] is not None:
        best = np.argsort(-scores, kind='stable')[: step['number']]
        best = best[labels[best] < step['things']]
        objects = _masked_objects(scores[best], labels[best], masks[best], size)
    if step['panoptic'] is None:
        return objects
    best = scores > step['panoptic']['above']
    inside = [_sigmoid(resize_maps(m[None], size, False)[0]) for m in masks[best]]
    return Panoptic(_panoptic(scores[best], labels[best], inside, step, size), objects)


def _masked_objects(
    scores: np.ndarray, labels: np.ndarray, masks: np.ndarray, size: tuple[int, int]
) -> Detections:
    whole = np.zeros((len(masks), *size), bool)
    boxes, scores = np.zeros((len(masks), 4), np.float32), scores.copy()
    for row, mask in enumerate(masks):
        logits = resize_maps(mask[None], size, False)[0]
        whole[row] = inside = logits > 0
        scores[row] *= _sigmoid(logits[inside]).sum() / (inside.sum() + 1e-6)
        boxes[row] = box_of(inside)
    order = np.argsort(-scores, kind='stable')
    return Detections(boxes[order], scores[order], labels[order], whole[order])


def _panoptic(
    scores: np.ndarray,
    labels: np.ndarray,
    masks: Sequence[np.ndarray],
    step: Mapping,
    size: tuple[int, int],
) -> np.ndarray:
    """Return the segments of an image, each where its mask has the best score."""
    segments, number = np.full(size, step['classes'], np.int32), 0
    owner = np.argmax([s * m for s, m in zip(scores, masks, strict=True)] or [0], 0)
    for k, (label, mask) in enumerate(zip(labels, masks, strict=True)):
        own, whole = owner == k, mask >= 0.5
        area, total = own.sum(), whole.sum()
        if not area or not total or area / total < step['panoptic']['iou']:
            continue
        if step['panoptic']['inside']:
            own &= whole
        thing = label < step['things']
        number += thing
        segments[own] = label + OFFSET * number * thing
    return segments


def box_of(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Return the bounding box of a mask ``(H, W)``, zeros if the mask is empty."""
    y, x = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return (x[0], y[0], x[-1] + 1, y[-1] + 1) if len(x) else (0, 0, 0, 0)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def _paste(whole: np.ndarray, box: np.ndarray, part: np.ndarray, above: float) -> None:
    """Resize the mask of a box bilinearly, threshold it and paste it into ``whole``."""
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
