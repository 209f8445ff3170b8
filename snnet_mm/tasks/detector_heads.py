"""Parts of mmdet's two-stage detectors that graphs can run, for one image."""

import torch
import torch.nn.functional as F
from mmengine.config import ConfigDict
from torch import Tensor, nn


def sides_of(image: Tensor) -> Tensor:
    """Return limits of boxes in a normalised image ``(C, H, W)``: its size, twice.

    Width comes first. Right and bottom pixels that are 0 in all channels are padding.
    """
    filled = (image != 0).any(0)
    height, width = (
        (filled.any(axis) * torch.arange(1, length + 1, device=image.device)).amax(0)
        for axis, length in zip((1, 0), image.shape[1:], strict=True)
    )
    return torch.stack([width, height, width, height]).to(image)


def propose(
    rpn_head: nn.Module, maps: tuple[Tensor, ...], sides: Tensor, chosen: ConfigDict
) -> Tensor:
    """Return the boxes ``(n, 4)`` that an RPN proposes."""
    parts, found = rpn_head(maps), []
    sizes, device = [x.shape[2:] for x in maps], sides.device
    priors = rpn_head.prior_generator.grid_priors(sizes, device=device)
    for level, (scores, deltas, own) in enumerate(zip(*parts, priors, strict=True)):
        scores = scores[0].permute(1, 2, 0).flatten().sigmoid()
        deltas = deltas[0].permute(1, 2, 0).reshape(-1, 4)
        most = chosen.get('nms_pre', -1)
        scores, best = scores.topk(min(most, len(own)) if most > 0 else len(own))
        boxes = rpn_head.bbox_coder.decode(own[best], deltas[best])
        found.append((boxes, scores, torch.full_like(scores, level)))
    boxes, scores, levels = map(torch.cat, zip(*found, strict=True))
    boxes = torch.minimum(boxes.clamp(min=0), sides)
    if chosen.get('min_bbox_size', -1) >= 0:
        large = (boxes[:, 2:] - boxes[:, :2] > chosen.min_bbox_size).all(1)
        (large,) = large.nonzero(as_tuple=True)
        boxes, scores, levels = boxes[large], scores[large], levels[large]
    return boxes[_suppress(boxes, scores, levels, chosen)]


def choose(
    head: nn.Module,
    pooled: Tensor,
    proposals: Tensor,
    sides: Tensor,
    chosen: ConfigDict,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes ``(n, 4)``, scores and labels that a box head finds."""
    scores, deltas = head(pooled)
    number = deltas.shape[1] // 4
    repeated = proposals.repeat_interleave(number, 0)
    boxes = head.bbox_coder.decode(repeated, deltas.reshape(-1, 4))
    boxes = torch.minimum(boxes.clamp(min=0), sides).reshape(-1, number, 4)
    scores = scores.softmax(-1)[:, :-1]
    row, label = (scores > chosen.score_thr).nonzero(as_tuple=True)
    boxes, scores = boxes[row, label.clamp(max=number - 1)], scores[row, label]
    best = _suppress(boxes, scores, label, chosen)
    return boxes[best], scores[best], label[best]


def _suppress(
    boxes: Tensor, scores: Tensor, groups: Tensor, chosen: ConfigDict
) -> Tensor:
    """Return indices kept by NMS within groups, by offsets as in mmcv's batched NMS."""
    from torchvision.ops import nms

    end = F.pad(boxes.flatten(), (0, 1)).amax(0) + 1  # there may be no boxes
    apart = boxes + (groups * end)[:, None]
    return nms(apart, scores, chosen.nms.iou_threshold)[: chosen.max_per_img]


def pool(extractor: nn.Module, maps: tuple[Tensor, ...], boxes: Tensor) -> Tensor:
    """Pool boxes ``(n, 4)``, each from the map for its size."""
    from torchvision.ops import roi_align

    layers, total = extractor.roi_layers, 0
    levels = extractor.map_roi_levels(F.pad(boxes, (1, 0)), len(layers))
    for level, (layer, features) in enumerate(zip(layers, maps, strict=False)):
        # Boxes of other levels are set to zero size, which is cheap.
        own = (levels == level)[:, None]
        how = layer.output_size, layer.spatial_scale, layer.sampling_ratio, True
        pooled = roi_align(features, F.pad(boxes * own, (1, 0)), *how)
        total = total + pooled * own[..., None, None]
    return total


def are_plain(detector: nn.Module) -> bool:
    """Return whether a two-stage detector's heads predict as the functions here do."""
    rpn, roi = detector.rpn_head, detector.roi_head
    if not _named(RPNHead=rpn, StandardRoIHead=roi):
        return False
    coders, chosen = (rpn.bbox_coder, roi.bbox_head.bbox_coder), detector.test_cfg
    right = all(_named(DeltaXYWHBBoxCoder=c) and c.clip_border for c in coders)
    if roi.with_mask:  # a negative threshold keeps masks soft
        right &= _named(FCNMaskHead=roi.mask_head) and chosen.rcnn.mask_thr_binary >= 0
    for kind in ('bbox', 'mask') if roi.with_mask else ('bbox',):
        extractor = getattr(roi, f'{kind}_roi_extractor')
        layers = extractor.roi_layers
        right &= _named(SingleRoIExtractor=extractor) and _named(RoIAlign=layers[0])
        right &= all(layer.aligned and layer.pool_mode == 'avg' for layer in layers)
    for stage in (chosen.rpn, chosen.rcnn):
        right &= dict(stage.nms, iou_threshold=0) == dict(type='nms', iou_threshold=0)
        right &= stage.max_per_img > 0
    return right and rpn.use_sigmoid_cls and not roi.bbox_head.custom_activation


def _named(**parts: object) -> bool:
    return all(type(part).__name__ == name for name, part in parts.items())
