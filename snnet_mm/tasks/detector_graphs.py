"""Detectors of mmdet as one graph: mmdet's own prediction of one image, traced.

Prediction branches on the number of objects, which a graph cannot do. While a detector
predicts, :func:`_traceable` replaces these parts of mmdet 3.5: the choice of boxes,
NMS, clipping to the unpadded image, RoI pooling and the steps of the RoI head.
tests/test_exports/test_exported_detectors.py compares graphs with mmdet's inferencer,
and fails if mmdet changes the parts or the code around them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from mmengine.config import ConfigDict
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from snnet_mm.utils.replacing import replaced, with_globals

from .base import class_names, is_method

# The head that selects objects, by the class of the detector.
HEADS = dict(
    MaskFormer='panoptic_head',
    DetectionTransformer='bbox_head',
    TwoStageDetector='roi_head',
    SingleStageDetector='bbox_head',
)
# Owners of the methods of dense heads that call what is replaced.
DENSE = dict(
    predict=['BaseDenseHead'],
    predict_by_feat=['BaseDenseHead', 'YOLOXHead'],
    _predict_by_feat_single=['BaseDenseHead', 'GFLHead'],
    _bbox_post_process=['BaseDenseHead', 'YOLOXHead'],
)
DEFORMABLE = {'DeformConv2d', 'ModulatedDeformConv2d'}
NMS_KEYS = {'type', 'iou_threshold', 'class_agnostic', 'split_thr'}
OTHERWISE = 'it selects objects by a method that graphs do not support'
NEARLY_ZERO = 1e-4  # no pixel is as near to a mean, as means are not integers
MAX_OBJECTS = 1000  # of a head that sets no limit, such as YOLOX


def predict_one(detector: nn.Module, image: Tensor) -> list[Tensor]:
    """Predict a preprocessed image ``(1, 3, H, W)``, which may be padded.

    Returns:
        Boxes ``(n, 4)`` as left, top, right and bottom in pixels of this image, scores
        ``(n,)`` and labels ``(n,)``. Mask R-CNN adds masks ``(n, h, w)``: probabilities
        inside boxes. Mask2Former has masks ``(n, H, W)``, logits, and no boxes. The
        last rows, without an object, are -1.
    """
    # Some runtimes, such as OpenVINO, normalise by one multiplication and addition:
    # padding is nearly zero.
    image = image * (image.abs() > NEARLY_ZERO).any(1, keepdim=True)
    with _traceable(detector, image):
        (found,) = detector.predict(image, samples_of(image), rescale=False)
    names = 'bboxes', 'scores', 'labels', 'masks'
    rows = rows_of(detector)
    return [
        torch.cat([x, x.new_full((rows, *x.shape[1:]), -1)])[:rows].to(image)
        for x in (getattr(found, name) for name in names if hasattr(found, name))
    ]


def samples_of(images: Tensor) -> list[BaseDataElement]:
    """Return data samples of images without padding or resizing."""
    sizes = 'img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'
    height, width = images.shape[2:]
    about = dict.fromkeys(sizes, (height, width)) | dict(scale_factor=(1, 1))
    about['border'] = 0, height, 0, width  # the image in a padded one, for CenterNet
    return [BaseDataElement(metainfo=about) for _ in images]


def outputs_of(detector: nn.Module) -> tuple[str, ...]:
    """Return the names of the outputs of :func:`predict_one`."""
    if _kind_of(detector) == 'MaskFormer':
        return 'scores', 'labels', 'masks'
    masks = getattr(getattr(detector, 'roi_head', None), 'with_mask', False)
    return 'boxes', 'scores', 'labels', *(['masks'] if masks else [])


def rows_of(detector: nn.Module) -> int:
    """Return the number of rows of the outputs of :func:`predict_one`."""
    kind = _kind_of(detector)
    if kind == 'MaskFormer':
        step, queries = step_of(detector), detector.panoptic_head.num_queries
        return max(step['number'] or 0, queries if step['panoptic'] else 0)
    roi = kind == 'TwoStageDetector'
    chosen = detector.test_cfg.rcnn if roi else detector.bbox_head.test_cfg
    return chosen.get('max_per_img', MAX_OBJECTS)


def step_of(detector: nn.Module) -> dict:
    """Return the caller's step that places the objects of a graph in its image."""
    if _kind_of(detector) != 'MaskFormer':
        masks = 'masks' in outputs_of(detector)
        above = detector.test_cfg.rcnn.mask_thr_binary if masks else None
        return dict(step='instances', above=above)
    fusion, panoptic = detector.panoptic_fusion_head, None
    chosen = fusion.test_cfg
    if chosen.get('panoptic_on', True):
        panoptic = dict(above=chosen.get('object_mask_thr', 0.8))
        panoptic |= dict(iou=chosen.get('iou_thr', 0.8))
        panoptic |= dict(inside=chosen.get('filter_low_score', False))
    instances = chosen.get('instance_on', False)
    number = chosen.get('max_per_image', 100) if instances else None
    classes = dict(classes=fusion.num_classes, things=fusion.num_things_classes)
    return dict(step='segments', **classes, number=number, panoptic=panoptic)


def fault_of(detector: nn.Module) -> str | None:
    """Return the name of the head that a graph would lack and why, or None."""
    if (kind := _kind_of(detector)) is None:
        return f'{type(detector).__name__} is none of the known detectors'
    why = OTHERWISE
    if is_method(detector, 'predict', kind):
        faults = dict(
            MaskFormer=_fault_of_masks,
            TwoStageDetector=_fault_of_stages,
            SingleStageDetector=_fault_of_dense,
        )
        why = faults.get(kind, lambda _: None)(detector)
    return why and f'{type(getattr(detector, HEADS[kind])).__name__}: {why}'


def _kind_of(detector: nn.Module) -> str | None:
    names = class_names(detector)
    found = (k for k, head in HEADS.items() if k in names and hasattr(detector, head))
    return next(found, None)


def _fault_of_masks(detector: nn.Module) -> str | None:
    fusion = detector.panoptic_fusion_head
    known = is_method(detector.panoptic_head, 'predict', 'MaskFormerHead')
    # MaskFormer's own forward cannot be traced.
    known &= is_method(detector.panoptic_head, 'forward', 'Mask2FormerHead')
    for name in ('predict', 'panoptic_postprocess', 'instance_postprocess'):
        known &= is_method(fusion, name, 'MaskFormerFusionHead')
    if not known:
        return OTHERWISE
    # Only one class of a query has a score above one half.
    low = fusion.test_cfg.get('object_mask_thr', 0.8) < 0.5
    return 'its object_mask_thr is under 0.5' if low else None


def _fault_of_dense(detector: nn.Module) -> str | None:
    head = detector.bbox_head
    chosen = head.test_cfg
    # mmdet 3.5 itself fails to predict with SSD, which has no ``loss_cls``.
    known = hasattr(head, 'loss_cls')
    known &= all(is_method(head, name, *owners) for name, owners in DENSE.items())
    of_yolox = 'YOLOXHead' in class_names(head)
    if not known or not (of_yolox or chosen.get('nms_pre', -1) > 0):
        return OTHERWISE
    if any(DEFORMABLE & {*class_names(part)} for part in detector.modules()):
        return 'ONNX Runtime has no deformable convolutions'
    nms = dict(chosen.get('nms') or {})
    if nms.get('type', 'nms') != 'nms' or not {*nms} <= NMS_KEYS:
        return f'its NMS is {nms}'
    if chosen.get('min_bbox_size', -1) > 0:
        return 'its min_bbox_size is in pixels of the image before it is resized'
    clips = getattr(getattr(head, 'bbox_coder', None), 'clip_border', False)
    return _fault_of_padding(detector) if clips else None


def _fault_of_stages(detector: nn.Module) -> str | None:
    if not detector.with_rpn or not _are_plain(detector):
        name = type(getattr(detector, 'rpn_head', None)).__name__
        return f'it or {name} selects objects by a method that graphs do not support'
    return _fault_of_padding(detector)


def _are_plain(detector: nn.Module) -> bool:
    """Return whether the heads of a two-stage detector choose as the functions here."""
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


def _fault_of_padding(detector: nn.Module) -> str | None:
    about = detector.data_preprocessor
    if about is None:  # in a graph, whose model was checked before
        return None
    mean = getattr(about, 'mean', torch.zeros(1))
    apart = not about.pad_value and (mean % 1).any()
    return None if apart else 'pixels may look like padding (data_preprocessor)'


@contextmanager
def _traceable(detector: nn.Module, image: Tensor) -> Iterator[None]:
    """Let a detector predict an image without branching on numbers of objects.

    ``detector.predict`` then returns the objects in place of data samples.
    """
    sides, kind = sides_of(image[0]), _kind_of(detector)
    with ExitStack() as stack:

        def put(part: object, **names: Callable) -> None:
            stack.enter_context(replaced(vars(part), names))

        put(detector, add_pred_to_datasample=lambda samples, found: found)
        if kind == 'MaskFormer':
            number = rows_of(detector)
            put(detector.panoptic_fusion_head, predict=partial(_best_masks, number))
        elif kind in ('SingleStageDetector', 'TwoStageDetector'):
            roi = getattr(detector, 'roi_head', None)
            head = detector.bbox_head if roi is None else detector.rpn_head
            called = dict(filter_scores_and_topk=_best_scores)
            called |= dict(InstanceData=SimpleNamespace)
            put(head, **{name: with_globals(head, name, called) for name in DENSE})
            put(head, _bbox_post_process=_keep_best)
            for part in filter(None, (head, getattr(roi, 'bbox_head', None))):
                if coder := getattr(part, 'bbox_coder', None):
                    put(coder, decode=partial(_decode, coder, coder.decode, sides))
            if roi is not None:
                put(roi, predict=partial(_predict_regions, roi))
                for kind in ('bbox', 'mask') if roi.with_mask else ('bbox',):
                    extractor = getattr(roi, f'{kind}_roi_extractor')
                    put(extractor, forward=partial(pool, extractor))
        yield


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


def _decode(
    coder: object, decode: Callable, sides: Tensor, *args: Tensor, **_
) -> Tensor:
    """Decode boxes; clip them to the unpadded image where their coder clips."""
    boxes = decode(*args)
    clips = getattr(coder, 'clip_border', False)
    return torch.minimum(boxes.clamp(min=0), sides) if clips else boxes


def _best_scores(
    scores: Tensor, threshold: float, number: int, results: dict
) -> tuple[Tensor, Tensor, Tensor, dict]:
    """Stand in for mmdet's ``filter_scores_and_topk``.

    It returns a fixed number of scores; scores not above the threshold become -1.
    """
    flat = torch.where(scores > threshold, scores, -1).flatten()
    flat, best = flat.topk(min(number, len(flat)))
    rows, labels = best // scores.shape[1], best % scores.shape[1]
    return flat, labels, rows, {name: value[rows] for name, value in results.items()}


def _keep_best(results: SimpleNamespace, cfg: ConfigDict, **_) -> SimpleNamespace:
    """Stand in for ``_bbox_post_process`` of all dense heads."""
    boxes, scores = results.bboxes, results.scores
    groups = getattr(results, 'level_ids', None)  # of an RPN
    groups = results.labels if groups is None else groups
    scores = scores * getattr(results, 'score_factors', 1)
    valid = scores >= 0
    if (min_side := cfg.get('min_bbox_size', -1)) >= 0:
        valid &= (boxes[:, 2:] - boxes[:, :2] > min_side).all(1)
    (valid,) = valid.nonzero(as_tuple=True)
    return _suppress(boxes[valid], scores[valid], groups[valid], cfg)


def _suppress(
    boxes: Tensor, scores: Tensor, groups: Tensor, cfg: ConfigDict
) -> SimpleNamespace:
    """Apply NMS within groups, which offsets separate as in mmcv's batched NMS."""
    from torchvision.ops import nms

    apart = boxes
    if not cfg.nms.get('class_agnostic', False):
        end = F.pad(boxes.flatten(), (0, 1)).amax(0) + 1  # there may be no boxes
        apart = boxes + (groups * end)[:, None]
    number = cfg.get('max_per_img', MAX_OBJECTS)
    best = nms(apart, scores, cfg.nms.iou_threshold)[:number]
    return SimpleNamespace(bboxes=boxes[best], scores=scores[best], labels=groups[best])


def _predict_regions(
    roi: nn.Module, maps: Sequence[Tensor], proposals: list[SimpleNamespace], *_, **__
) -> list[SimpleNamespace]:
    """Stand in for the ``predict`` of a ``StandardRoIHead``."""
    chosen, boxes = roi.test_cfg, proposals[0].bboxes
    found = roi._bbox_forward(maps, F.pad(boxes, (1, 0)))
    scores, deltas = found['cls_score'].softmax(-1)[:, :-1], found['bbox_pred']
    number = deltas.shape[1] // 4  # 1 if all classes have the same box
    repeated = boxes.repeat_interleave(number, 0)
    boxes = roi.bbox_head.bbox_coder.decode(repeated, deltas.reshape(-1, 4))
    boxes = boxes.reshape(-1, number, 4)
    row, label = (scores > chosen.score_thr).nonzero(as_tuple=True)
    boxes, scores = boxes[row, label.clamp(max=number - 1)], scores[row, label]
    results = _suppress(boxes, scores, label, chosen)
    if roi.with_mask:
        found = roi._mask_forward(maps, F.pad(results.bboxes, (1, 0)))
        masks, label = found['mask_preds'].sigmoid(), results.labels
        rows = torch.arange(label.shape[0], device=label.device)
        results.masks = masks[rows, label.clamp(max=masks.shape[1] - 1)]
    return [results]


def pool(extractor: nn.Module, maps: Sequence[Tensor], rois: Tensor) -> Tensor:
    """Stand in for the ``forward`` of a ``SingleRoIExtractor``, for one image.

    Every box of ``rois`` ``(n, 5)`` is pooled from the map for its size.
    """
    from torchvision.ops import roi_align

    layers, total = extractor.roi_layers, 0
    levels = extractor.map_roi_levels(rois, len(layers))
    for level, (layer, features) in enumerate(zip(layers, maps, strict=False)):
        # Boxes of other levels are set to zero size, which is cheap.
        own = (levels == level)[:, None]
        how = layer.output_size, layer.spatial_scale, layer.sampling_ratio, True
        pooled = roi_align(features, rois * own, *how)
        total = total + pooled * own[..., None, None]
    return total


def _best_masks(
    number: int, logits: Tensor, masks: Tensor, *_, **__
) -> list[SimpleNamespace]:
    """Stand in for the ``predict`` of a ``MaskFormerFusionHead``.

    The best pairs of a query and a class are returned in the order of queries, by which
    mmdet numbers segments. Without objects, the step ``segments`` completes them.
    """
    scores = logits[0].softmax(-1)[:, :-1]
    best = scores.flatten().topk(number).indices.sort().values
    query, label = best // scores.shape[1], best % scores.shape[1]
    found = dict(scores=scores[query, label], labels=label, masks=masks[0][query])
    return [SimpleNamespace(**found)]
