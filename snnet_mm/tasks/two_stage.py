"""Forward of a two-stage detector with proposals that do not depend on weights."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from torch import Tensor, nn

# Of boxes, as parts of the image's shorter side: a share for every level of a pyramid.
SIDES = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
# Parts with weights that are run here; RoI extractors have none.
PARTS = (
    'backbone', 'neck', 'rpn_head', 'roi_head', 'shared_head', 'bbox_head', 'mask_head',
)  # fmt: skip


def run_two_stage(detector: nn.Module, images: Tensor) -> tuple:
    """Run mmdet's two-stage detector, no cascade, up to the raw output of its heads.

    How many proposals there are depends on the image and on the weights, so here every
    image ``(B, 3, H, W)`` has as many boxes, laid out evenly, as prediction allows:
    ``test_cfg.rpn.max_per_img`` for the box head and ``test_cfg.rcnn.max_per_img`` for
    the mask head. Decoding and NMS are not run. On meta tensors
    features are not pooled, which costs next to nothing.

    Raises:
        NotImplementedError: For cascades, detectors without an RPN, and where
            prediction runs more than these heads, such as PointRend's: costs are then
            those of backbone and neck.
    """
    limits = detector.test_cfg
    # Of the end anchor, where every anchor has its own.
    head = getattr(detector.roi_head, 'active', detector.roi_head)
    if isinstance(getattr(head, 'bbox_head', None), nn.ModuleList):
        raise NotImplementedError('the boxes of a cascade depend on the weights')
    if not detector.with_rpn:
        raise NotImplementedError('proposals come with the images')
    for owner in (detector, head):
        for name, part in owner.named_children():
            if name not in PARTS and any(True for _ in part.parameters()):
                part_name = f'{type(owner).__name__}.{name}'
                raise NotImplementedError(f'prediction runs {part_name}, not counted')
    maps = detector.extract_feat(images)
    outputs = [detector.rpn_head(maps)]
    with _pooling_on(images.device, head):
        boxes = even_boxes(images, limits.rpn.max_per_img)
        found = head._bbox_forward(maps, boxes)
        outputs.append((found['cls_score'], found['bbox_pred']))
        if head.with_mask:
            boxes = even_boxes(images, limits.rcnn.max_per_img)
            outputs.append(head._mask_forward(maps, boxes)['mask_preds'])
    return tuple(outputs)


def even_boxes(images: Tensor, number: int) -> Tensor:
    """Lay boxes ``(B * number, 5)``, image and corners, over images."""
    batch, _, height, width = images.shape
    n = torch.arange(number, device=images.device)
    sides = min(height, width) * images.new_tensor(SIDES)[n % len(SIDES)]
    # Multiples of the golden ratio never fall on a line.
    left = (n * 0.618034 % 1) * (width - sides)
    top = (n + 0.5) / number * (height - sides)
    boxes = torch.stack([left, top, left + sides, top + sides], dim=1).to(images)
    place = torch.arange(batch, device=images.device).repeat_interleave(number)
    return torch.cat([place[:, None].to(images), boxes.repeat(batch, 1)], dim=1)


@contextmanager
def _pooling_on(device: torch.device, head: nn.Module) -> Iterator[None]:
    """Let the RoI extractors of a head work on a device."""

    def pool(extractor: nn.Module, maps: tuple[Tensor, ...], rois: Tensor, **_):
        size = extractor.roi_layers[0].output_size
        return maps[0].new_empty(len(rois), extractor.out_channels, *size)

    with ExitStack() as stack:
        for part in head.modules():
            if device.type == 'meta' and hasattr(part, 'roi_layers'):
                part.forward = partial(pool, part)
                stack.callback(delattr, part, 'forward')
        yield
