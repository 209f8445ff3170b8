"""Heads of mmdet's two-stage detectors as graphs, up to where boxes are chosen.

How many boxes are left depends on the image: sorting and NMS are left to the caller.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .two_stage import even_boxes

NUM_BOXES = 16  # to trace on
PARTS = 'rpn_head', 'roi_head'


class ProposalGraph(nn.Module):
    """Boxes and scores of all anchors of the maps of a pyramid, level after level."""

    def __init__(self, rpn_head: nn.Module, maps: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.rpn_head = rpn_head
        sizes = [level.shape[2:] for level in maps]
        priors = rpn_head.prior_generator.grid_priors(sizes, device=maps[0].device)
        self.levels = [len(level) for level in priors]
        self.register_buffer('priors', torch.cat(priors))

    def forward(self, *maps: Tensor) -> tuple[Tensor, Tensor]:
        scores, deltas = (
            torch.cat([x[0].permute(1, 2, 0).reshape(-1, of) for x in found])
            for found, of in zip(self.rpn_head(maps), (1, 4), strict=True)
        )
        boxes = self.rpn_head.bbox_coder.decode(self.priors, deltas)
        return boxes, scores[:, 0].sigmoid()


class RoIGraph(nn.Module):
    """A head of the boxes ``(n, 4)`` that come after the maps."""

    def __init__(self, head: nn.Module, extractor: nn.Module) -> None:
        super().__init__()
        self.head, self.extractor = head, extractor


class BoxGraph(RoIGraph):
    """Boxes ``(n, classes or 1, 4)`` and scores, background last, of proposals."""

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        scores, deltas = self.head(pool(self.extractor, *inputs))
        number = deltas.shape[1] // 4
        repeated = inputs[-1].repeat_interleave(number, 0)
        boxes = self.head.bbox_coder.decode(repeated, deltas.reshape(-1, 4))
        return boxes.reshape(-1, number, 4), scores.softmax(-1)


class MaskGraph(RoIGraph):
    """Probabilities ``(n, classes or 1, h, w)`` inside of boxes."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.head(pool(self.extractor, *inputs)).sigmoid()


def pool(extractor: nn.Module, *inputs: Tensor) -> Tensor:
    """Pool boxes ``(n, 4)``, the last input, from the maps of their sizes."""
    from torchvision.ops import roi_align

    *maps, boxes = inputs
    layers, total = extractor.roi_layers, 0
    levels = extractor.map_roi_levels(F.pad(boxes, (1, 0)), len(layers))
    for level, (layer, features) in enumerate(zip(layers, maps, strict=False)):
        # Boxes of other levels have no size here, and take little time.
        own = (levels == level)[:, None]
        how = layer.output_size, layer.spatial_scale, layer.sampling_ratio, True
        pooled = roi_align(features, F.pad(boxes * own, (1, 0)), *how)
        total = total + pooled * own[..., None, None]
    return total


def two_stage_graphs(
    detector: nn.Module, maps: tuple[Tensor, ...]
) -> Iterator[tuple[str, nn.Module, list[str], tuple[Tensor, ...], dict]]:
    """Yield the graphs of :meth:`Task.head_graphs` for a two-stage detector.

    Yields nothing for unsupported or stitch-dependent heads.
    """
    if fault_of_two_stages(detector):
        return
    rpn, rcnn = detector.test_cfg.rpn, detector.test_cfg.rcnn
    roi, found = detector.roi_head, ['boxes', 'scores']
    graph = ProposalGraph(detector.rpn_head, maps)
    step = dict(levels=graph.levels, per_level=rpn.get('nms_pre', -1))
    step |= dict(larger_than=rpn.get('min_bbox_size', -1))
    step |= dict(iou=rpn.nms.iou_threshold, number=rpn.max_per_img)
    yield 'proposals', graph, found, maps, step
    height, width = (4 * n for n in maps[0].shape[2:])
    boxes = even_boxes(maps[0].new_empty(1, 3, height, width), NUM_BOXES)[:, 1:]
    step = dict(above=rcnn.score_thr, iou=rcnn.nms.iou_threshold)
    step |= dict(number=rcnn.max_per_img)
    graph = BoxGraph(roi.bbox_head, roi.bbox_roi_extractor)
    yield 'boxes', graph, found, (*maps, boxes), step
    if roi.with_mask:
        graph = MaskGraph(roi.mask_head, roi.mask_roi_extractor)
        step = dict(above=rcnn.mask_thr_binary)
        yield 'masks', graph, ['masks'], (*maps, boxes), step


def fault_of_two_stages(detector: nn.Module) -> str | None:
    """Return why a two-stage detector's heads have no graphs, or None."""
    if _are_plain(detector):
        return None
    names = [type(getattr(detector, part, None)).__name__ for part in PARTS]
    return f'{names[0]} or {names[1]} predicts otherwise than the graphs of heads'


def _are_plain(detector: nn.Module) -> bool:
    """Return whether the heads predict as the graphs do, alike for all stitches."""
    rpn, roi = (getattr(detector, part, None) for part in PARTS)
    if not _named(RPNHead=rpn, StandardRoIHead=roi):
        return False
    coders, chosen = (rpn.bbox_coder, roi.bbox_head.bbox_coder), detector.test_cfg
    right = all(_named(DeltaXYWHBBoxCoder=c) and c.clip_border for c in coders)
    if roi.with_mask:  # below 0 masks stay soft
        right &= _named(FCNMaskHead=roi.mask_head) and chosen.rcnn.mask_thr_binary >= 0
    for kind in ('bbox', 'mask') if roi.with_mask else ('bbox',):
        extractor = getattr(roi, f'{kind}_roi_extractor')
        layers = extractor.roi_layers
        right &= _named(SingleRoIExtractor=extractor) and _named(RoIAlign=layers[0])
        right &= all(layer.aligned and layer.pool_mode == 'avg' for layer in layers)
    for nms in (chosen.rpn.nms, chosen.rcnn.nms):
        right &= dict(nms, iou_threshold=0) == dict(type='nms', iou_threshold=0)
    right &= rpn.use_sigmoid_cls and not roi.bbox_head.custom_activation
    return right and not any(
        isinstance(part, nn.modules.batchnorm._BatchNorm)
        or hasattr(type(part), 'on_stitch')
        for part in (*rpn.modules(), *roi.modules())
    )


def _named(**parts: object) -> bool:
    return all(type(part).__name__ == name for name, part in parts.items())
