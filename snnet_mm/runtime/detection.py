"""Objects and segments from the outputs of a detector's graph, as in mmdet."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .images import resize_maps

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


def place_objects(
    found: Sequence[np.ndarray],
    step: Mapping,
    size: tuple[int, int],
    factors: Sequence[float],
) -> Detections:
    """Place the objects of a graph in an image, as the step ``instances`` specifies.

    The image has the height and width ``size``; it was resized by ``factors`` (x, y).
    """
    number = (found[1] >= 0).sum()
    boxes, scores, labels, *inside = (x[:number] for x in found)
    boxes, labels = boxes / np.tile(np.float32(factors), 2), labels.astype(int)
    if step['above'] is None:
        return Detections(boxes, scores, labels, None)
    masks = np.zeros((number, *size), bool)
    for mask, box, part in zip(masks, boxes, *inside, strict=True):
        _paste(mask, box, part, step['above'])
    return Detections(boxes, scores, labels, masks)


def choose_objects(
    found: Sequence[np.ndarray],
    step: Mapping,
    factors: Sequence[float],
    within: tuple[int, int],
) -> Detections:
    """Choose among the boxes and scores of a graph, as its step ``objects`` specifies.

    The image was resized by ``factors`` ``(x, y)``. If the step sets ``clip``, boxes
    are clipped to the height and width ``within`` before they are scaled back.
    """
    boxes, scores, *multipliers = found
    rows, labels, begin = [], [], 0
    for number in step['levels']:
        own = scores[begin : begin + number]
        label = own.argmax(1)
        row = np.arange(number)
        if step['one_class']:
            chosen = own[row, label] > step['above']
            row, label = row[chosen], label[chosen]
        else:
            row, label = np.nonzero(own > step['above'])
        best = np.argsort(-own[row, label], kind='stable')
        best = best[: min(step['per_level'], len(best))]  # as in mmdet, also for -1
        rows.append(begin + row[best])
        labels.append(label[best])
        begin += number
    row, label = np.concatenate(rows), np.concatenate(labels)
    boxes, scores = boxes[row], scores[row, label]
    if step['clip']:
        boxes = np.clip(boxes, 0, np.float32([within[1], within[0]] * 2))
    boxes = boxes / np.tile(np.float32(factors), 2)
    for multiplier in multipliers:
        scores = scores * multiplier[row]
    if step['larger_than'] >= 0:
        large = (boxes[:, 2:] - boxes[:, :2] > step['larger_than']).all(1)
        boxes, scores, label = boxes[large], scores[large], label[large]
    if step['iou'] is None:
        best = np.argsort(-scores, kind='stable')
    else:
        groups = np.zeros_like(label) if step['all_classes'] else label
        best = suppress(boxes, scores, groups, step['iou'])
    best = best[: step['number']]
    return Detections(boxes[best], scores[best], label[best], None)


def choose_queries(
    found: Sequence[np.ndarray],
    step: Mapping,
    size: tuple[int, int],
    within: tuple[int, int],
) -> Detections | Panoptic:
    """Choose among the scores and masks of queries, as the step ``queries`` specifies.

    Masks are cropped to the height and width ``within`` and resized to ``size``.
    """
    scores, masks = found
    masks = masks[:, : within[0], : within[1]]
    objects = None
    if step['number'] is not None:
        objects = _masked_objects(scores[:, :-1], masks, step, size)
    if step['panoptic'] is None:
        return objects
    labels = scores.argmax(1)
    best = scores.max(1)
    nothing = scores.shape[1] - 1
    chosen = (labels != nothing) & (best > step['panoptic']['above'])
    segments = np.full(size, nothing, np.int32)
    labels, best = labels[chosen], best[chosen]
    inside = [_sigmoid(resize_maps(m[None], size, False)[0]) for m in masks[chosen]]
    owner = np.argmax([b * m for b, m in zip(best, inside, strict=True)] or [0], 0)
    number = 0
    for k, (label, mask) in enumerate(zip(labels, inside, strict=True)):
        own, whole = owner == k, mask >= 0.5
        area, total = own.sum(), whole.sum()
        if not area or not total or area / total < step['panoptic']['iou']:
            continue
        if step['panoptic']['inside']:
            own &= whole
        thing = label < step['things']
        number += thing
        segments[own] = label + OFFSET * number * thing
    return Panoptic(segments, objects)


def _masked_objects(
    scores: np.ndarray, masks: np.ndarray, step: Mapping, size: tuple[int, int]
) -> Detections:
    best = np.argsort(-scores, axis=None, kind='stable')[: step['number']]
    queries, labels = np.divmod(best, scores.shape[1])
    things = labels < step['things']
    queries, labels, scores = queries[things], labels[things], scores.flat[best[things]]
    boxes, rated = np.zeros((len(masks), 4), np.float32), np.zeros_like(masks[:, 0, 0])
    whole = np.zeros((len(masks), *size), bool)
    for query in np.unique(queries):
        logits = resize_maps(masks[query][None], size, False)[0]
        whole[query] = mask = logits > 0
        rated[query] = _sigmoid(logits[mask]).sum() / (mask.sum() + 1e-6)
        boxes[query] = box_of(mask)
    scores = scores * rated[queries]
    order = np.argsort(-scores, kind='stable')
    queries = queries[order]
    return Detections(boxes[queries], scores[order], labels[order], whole[queries])


def box_of(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Return the bounding box of a mask ``(H, W)``, zeros if the mask is empty."""
    y, x = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    return (x[0], y[0], x[-1] + 1, y[-1] + 1) if len(x) else (0, 0, 0, 0)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def suppress(
    boxes: np.ndarray, scores: np.ndarray, groups: np.ndarray, iou: float
) -> np.ndarray:
    """Return the indices of the boxes that NMS keeps, sorted by score.

    Boxes of different groups are moved apart, as in mmcv's batched NMS.
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
        with np.errstate(invalid='ignore'):  # boxes of zero area
            overlap = common / (areas[first] + areas[rest] - common)
        rest = rest[~(overlap > iou)]
    return order[kept]


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
