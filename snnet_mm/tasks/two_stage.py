"""Two-stage detectors with a number of boxes that does not depend on content."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from .base import class_names

# Sides of boxes relative to the image's shorter side, one per pyramid level.
SIDES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)


@contextmanager
def most_boxes(detector: nn.Module, images: Tensor) -> Iterator[None]:
    """Run the heads of mmdet's two-stage detector on as many boxes as it allows.

    Otherwise the number depends on the images ``(B, 3, H, W)`` and on the weights. If
    the RPN proposes fewer than ``test_cfg.rpn.max_per_img`` boxes, or the box head
    passes fewer than ``test_cfg.rcnn.max_per_img`` to the mask head, evenly placed
    boxes of that number replace them. Masks are not pasted into images.
    """
    calls = dict(rpn_head='predict', roi_head='predict_bbox')
    with ExitStack() as stack:
        for (name, call), stage in zip(calls.items(), ('rpn', 'rcnn'), strict=True):
            head = getattr(detector, name, None)
            # If every anchor has its own head, patch the head of the end anchor.
            head = getattr(head, 'active', head)
            limits = (getattr(detector, 'test_cfg', None) or {}).get(stage)
            if head is not None and limits and hasattr(head, call):
                most = limits.max_per_img
                setattr(head, call, partial(_filled, getattr(head, call), images, most))
                stack.callback(delattr, head, call)
        for head in detector.modules():
            if 'FCNMaskHead' in class_names(head):
                head.predict_by_feat = partial(_unpasted, images.shape[2:])
                stack.callback(delattr, head, 'predict_by_feat')
        yield


def _filled(predict: Callable, images: Tensor, number: int, *args, **kwargs) -> list:
    found = predict(*args, **kwargs)
    boxes = even_boxes(images[:1], number)[:, 1:]
    labels = torch.zeros(number, dtype=torch.long, device=boxes.device)
    even = dict(bboxes=boxes, labels=labels, scores=torch.ones_like(boxes[:, 0]))
    return [x if len(x) >= number else type(x)(**even) for x in found]


def _unpasted(
    size: Sequence[int], mask_preds: Sequence[Tensor], results_list: list, *_, **__
) -> list:
    for masks, results in zip(mask_preds, results_list, strict=True):
        results.masks = masks.new_zeros(len(results), *size, dtype=torch.bool)
    return results_list


def even_boxes(images: Tensor, number: int) -> Tensor:
    """Return boxes ``(B * number, 5)``, image index and corners, spread over images."""
    batch, _, height, width = images.shape
    n = torch.arange(number, device=images.device)
    sides = min(height, width) * images.new_tensor(SIDES)[n % len(SIDES)]
    # Multiples of the golden ratio never line up.
    left = (n * 0.618034 % 1) * (width - sides)
    top = (n + 0.5) / number * (height - sides)
    boxes = torch.stack([left, top, left + sides, top + sides], dim=1).to(images)
    place = torch.arange(batch, device=images.device).repeat_interleave(number)
    return torch.cat([place[:, None].to(images), boxes.repeat(batch, 1)], dim=1)
