"""mmdet's detectors as one graph, without the caller's steps on its outputs.

For one-stage detectors and DETRs, the caller selects objects by thresholds, sorting and
NMS, as the step ``objects`` of a manifest specifies.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import FunctionType, SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor, nn

from snnet_mm.anchors import image_channels

from .base import class_names, is_method
from .detector_heads import are_plain, choose, pool, propose, sides_of

FAR = 2**15  # pixels; no box reaches the border of an image this large
NMS_KEYS = {'type', 'iou_threshold', 'class_agnostic', 'split_thr'}
OTHERWISE = 'it chooses objects in a way of its own'
DEFORMABLE = {'DeformConv2d', 'ModulatedDeformConv2d'}


class WholeDetector(ABC):
    """The part of a detector that one graph computes.

    Args:
        model: A detector for which :meth:`fault` returns None.
    """

    outputs: tuple[str, ...] = 'boxes', 'scores', 'factors'
    head_name = 'bbox_head'
    takes_one = False  # whether a graph takes one image at a time

    def __init__(self, model: nn.Module) -> None:
        self.model, self.head = model, getattr(model, self.head_name)

    @classmethod
    @abstractmethod
    def fault(cls, model: nn.Module) -> str | None:
        """Return why a detector predicts in another way, or None if it does not."""

    @abstractmethod
    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        """Predict preprocessed images ``(B, 3, H, W)``.

        Returns:
            Boxes ``(B, n, 4)`` as left, top, right and bottom in image pixels, and
            scores ``(B, n, classes)``. Some heads add factors ``(B, n)``, by which the
            scores of selected boxes are multiplied.
        """

    @abstractmethod
    def step(self, size: tuple[int, int]) -> dict:
        """Return the caller's step for images of a size."""

    def _empty_image(self, size: tuple[int, int]) -> Tensor:
        channels = image_channels(self.model)
        return next(self.model.parameters()).new_zeros(1, channels, *size)


class DenseDetector(WholeDetector):
    """A detector with boxes at all locations of its maps, decoded by the head's code.

    That code takes the maps of one image, but decodes every location independently. A
    batch is therefore passed as one tall image.
    """

    base = 'BaseDenseHead'

    @classmethod
    def fault(cls, model: nn.Module) -> str | None:
        head, nms = model.bbox_head, dict(model.bbox_head.test_cfg.get('nms') or {})
        known = is_method(model, 'predict', 'SingleStageDetector')
        known &= is_method(head, 'predict', 'BaseDenseHead')
        for name in ('predict_by_feat', '_bbox_post_process'):
            known &= is_method(head, name, cls.base)
        if not known or not cls._decodes_alone(head):
            return OTHERWISE
        if any(DEFORMABLE & {*class_names(part)} for part in model.modules()):
            return 'ONNX Runtime has no deformable convolutions'
        plain = nms.get('type', 'nms') == 'nms' and {*nms} <= NMS_KEYS
        return None if plain else f'its NMS is {nms}'

    @classmethod
    def _decodes_alone(cls, head: nn.Module) -> bool:
        # mmdet 3.5 itself fails to predict with SSD, which has no ``loss_cls``.
        known = is_method(head, '_predict_by_feat_single', cls.base, 'GFLHead')
        return known and hasattr(head, 'loss_cls')

    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        return self._decode(self.model.extract_feat(images), (FAR, FAR))[0]

    def _decode(
        self, maps: Sequence[Tensor], limits: tuple[int, int]
    ) -> tuple[tuple[Tensor, ...], list[int]]:
        """Return boxes, scores and any factors, and the number of boxes per level."""
        parts, head, number = self.head(maps), self.head, maps[0].shape[0]
        about = dict(dtype=maps[0].dtype, device=maps[0].device)
        sizes = [level.shape[2:] for level in parts[0]]
        priors = head.prior_generator.grid_priors(sizes, **about)
        high = [[x.transpose(0, 1).flatten(1, 2) for x in part] for part in parts]
        high += [[None] * len(priors)] * (3 - len(high))  # heads without factors
        # mmdet's InstanceData compares lengths, which would make them static.
        names = dict(filter_scores_and_topk=_keep_all, InstanceData=SimpleNamespace)
        single = _with_names(type(head)._predict_by_feat_single, **names)
        repeated = [level.repeat(number, 1) for level in priors]
        about = dict(img_shape=limits), head.test_cfg
        with patch.object(head, '_bbox_post_process', lambda results, **_: results):
            found = single(head, *high, repeated, *about)
        values = found.bboxes, found.scores, getattr(found, 'score_factors', None)
        counts = [len(level) for level in priors]
        return tuple(
            torch.cat(
                [
                    level.unflatten(0, (number, -1))
                    for level in value.split([number * count for count in counts])
                ],
                dim=1,
            )
            for value in values
            if value is not None
        ), counts

    @torch.no_grad()
    def step(self, size: tuple[int, int]) -> dict:
        image = self._empty_image(size)
        (boxes, *_), levels = self._decode(self.model.extract_feat(image), (1, 1))
        chosen = self.head.test_cfg
        return objects_step(
            levels,
            per_level=chosen.get('nms_pre', -1),
            above=chosen.get('score_thr', 0),
            clip=bool(((boxes >= 0) & (boxes <= 1)).all()),
            larger_than=chosen.get('min_bbox_size', -1),
            iou=chosen.nms.iou_threshold,
            all_classes=chosen.nms.get('class_agnostic', False),
            number=chosen.max_per_img,
        )


class YOLOX(DenseDetector):
    """YOLOX: a box has one class; boxes are not clipped or limited in number."""

    base = 'YOLOXHead'

    @classmethod
    def _decodes_alone(cls, head: nn.Module) -> bool:
        return is_method(head, '_bbox_decode', cls.base)

    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        parts = self.head(self.model.extract_feat(images))
        sizes = [level.shape[2:] for level in parts[0]]
        about = dict(dtype=images.dtype, device=images.device, with_stride=True)
        priors = torch.cat(self.head.prior_generator.grid_priors(sizes, **about))
        classes, deltas, objects = (
            torch.cat([level.flatten(2) for level in part], 2).transpose(1, 2)
            for part in parts
        )
        boxes = self.head._bbox_decode(priors, deltas)
        return boxes, classes.sigmoid() * objects.sigmoid()

    @torch.no_grad()
    def step(self, size: tuple[int, int]) -> dict:
        image = self._empty_image(size)
        number, chosen = self.predict(image)[0].shape[1], self.head.test_cfg
        return objects_step(
            [number],
            per_level=number,
            above=chosen.score_thr,
            one_class=True,
            iou=chosen.nms.iou_threshold,
            all_classes=chosen.nms.get('class_agnostic', False),
            number=number,
        )


class QueryDetector(WholeDetector):
    """A DETR: every query has a box, and the best scores are selected.

    mmdet masks the padding of images; the graph accepts only images without padding.
    """

    @classmethod
    def fault(cls, model: nn.Module) -> str | None:
        head = model.bbox_head
        known = is_method(model, 'predict', 'DetectionTransformer')
        known &= is_method(head, '_predict_by_feat_single', 'DETRHead')
        known &= is_method(head, 'predict_by_feat', 'DETRHead', 'DeformableDETRHead')
        return None if known else OTHERWISE

    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        model, head, samples = self.model, self.head, [_sample(images)]
        height, width = images.shape[2:]
        # DINO adds a zero term if the numbers of images and queries are equal. Export
        # also compares the strides of expanded queries with those of two images.
        own = _with_names(type(model).forward_decoder, len=_length)

        def decode(**inputs: object) -> dict:
            for name, value in inputs.items():
                if isinstance(value, Tensor):
                    inputs[name] = value.contiguous()
            return own(model, **inputs)

        with (
            patch.object(model, 'forward_decoder', decode),
            patch.object(head, 'predict_by_feat', lambda *layers, **_: layers),
        ):
            inputs = model.forward_transformer(model.extract_feat(images), samples)
            layers = head.predict(**inputs, batch_data_samples=samples)
        logits, (x, y, w, h) = layers[0][-1], layers[1][-1].unbind(-1)
        one_class = not head.loss_cls.use_sigmoid
        scores = logits.softmax(-1)[..., :-1] if one_class else logits.sigmoid()
        left, right = (x - 0.5 * w) * width, (x + 0.5 * w) * width
        top, bottom = (y - 0.5 * h) * height, (y + 0.5 * h) * height
        return torch.stack([left, top, right, bottom], -1), scores

    def step(self, size: tuple[int, int]) -> dict:
        number = self.model.num_queries
        best = self.head.test_cfg.get('max_per_img', number)
        one_class = not self.head.loss_cls.use_sigmoid
        own = dict(above=-1, clip=True, fills=True, one_class=one_class, number=best)
        return objects_step([number], per_level=best, **own)


class MaskQueries(WholeDetector):
    """A Mask2Former: every query has a mask at image size."""

    outputs = 'scores', 'masks'
    head_name = 'panoptic_head'

    @classmethod
    def fault(cls, model: nn.Module) -> str | None:
        known = is_method(model, 'predict', 'MaskFormer')
        known &= is_method(model.panoptic_head, 'predict', 'MaskFormerHead')
        # MaskFormer's own forward loops over a batch, whose size may vary.
        known &= is_method(model.panoptic_head, 'forward', 'Mask2FormerHead')
        for name in ('predict', 'panoptic_postprocess', 'instance_postprocess'):
            known &= is_method(model.panoptic_fusion_head, name, 'MaskFormerFusionHead')
        return None if known else OTHERWISE

    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        maps = self.model.extract_feat(images)
        logits, masks = self.head.predict(maps, [_sample(images)])
        return logits.softmax(-1), masks

    def step(self, size: tuple[int, int]) -> dict:
        fusion = self.model.panoptic_fusion_head
        chosen, panoptic = fusion.test_cfg, None
        if chosen.get('panoptic_on', True):
            panoptic = dict(above=chosen.get('object_mask_thr', 0.8))
            panoptic |= dict(iou=chosen.get('iou_thr', 0.8))
            panoptic |= dict(inside=chosen.get('filter_low_score', False))
        number = chosen.get('max_per_image', 100)
        number = number if chosen.get('instance_on', False) else None
        step = dict(step='queries', things=fusion.num_things_classes)
        return step | dict(number=number, panoptic=panoptic)


class TwoStages(WholeDetector):
    """A Faster or Mask R-CNN, whose graph also selects the objects.

    A graph takes one image at a time and detects its padding. Outputs have
    ``test_cfg.rcnn.max_per_img`` rows; rows without an object have the score -1. Masks
    ``(B, n, h, w)`` are probabilities inside boxes.
    """

    head_name = 'roi_head'
    takes_one = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        masks = ('masks',) if self.head.with_mask else ()
        self.outputs = 'boxes', 'scores', 'labels', *masks

    @classmethod
    def fault(cls, model: nn.Module) -> str | None:
        known = is_method(model, 'predict', 'TwoStageDetector')
        if not known or not model.with_rpn or not are_plain(model):
            name = type(getattr(model, 'rpn_head', None)).__name__
            return f'it or {name} chooses objects in a way of its own'
        about = model.data_preprocessor
        if about is None:  # in a graph, whose model was checked before
            return None
        mean = getattr(about, 'mean', torch.zeros(1))
        apart = not about.pad_value and (mean % 1).any()
        return None if apart else 'pixels may look like padding (data_preprocessor)'

    def predict(self, images: Tensor) -> tuple[Tensor, ...]:
        found = [self._predict(image) for image in images.split(1)]
        return tuple(map(torch.stack, zip(*found, strict=True)))

    def _predict(self, image: Tensor) -> list[Tensor]:
        model, roi, chosen = self.model, self.head, self.model.test_cfg
        maps, sides = model.extract_feat(image), sides_of(image[0])
        proposals = propose(model.rpn_head, maps, sides, chosen.rpn)
        pooled = pool(roi.bbox_roi_extractor, maps, proposals)
        found = choose(roi.bbox_head, pooled, proposals, sides, chosen.rcnn)
        boxes, _, labels = found
        if roi.with_mask:
            masks = roi.mask_head(pool(roi.mask_roi_extractor, maps, boxes)).sigmoid()
            rows = torch.arange(labels.shape[0], device=labels.device)
            found += (masks[rows, labels.clamp(max=masks.shape[1] - 1)],)
        most = chosen.rcnn.max_per_img
        return [
            torch.cat([x, x.new_full((most, *x.shape[1:]), -1)])[:most].to(image)
            for x in found
        ]

    def step(self, size: tuple[int, int]) -> dict:
        chosen, masks = self.model.test_cfg.rcnn, self.head.with_mask
        return dict(step='instances', above=chosen.mask_thr_binary if masks else None)


def objects_step(
    levels: list[int],
    per_level: int,
    above: float,
    number: int,
    clip: bool = False,
    fills: bool = False,
    one_class: bool = False,
    larger_than: float = -1,
    iou: float | None = None,
    all_classes: bool = False,
) -> dict:
    """Return the step ``objects`` of a manifest.

    Args:
        levels: Number of boxes per level.
        per_level: Number of best (box, class) pairs kept per level.
        above: Score threshold of objects, before factors are applied.
        number: Largest number of objects.
        clip: Whether to clip boxes to the image.
        fills: Whether the image fills the graph's input without padding.
        one_class: Whether a box has only its best class.
        larger_than: Pixels that both sides of a box must exceed; negative for no limit.
        iou: IoU threshold of NMS; None without NMS.
        all_classes: Whether NMS is class-agnostic.
    """
    return dict(step='objects', **locals())


def kind_of(model: nn.Module) -> type[WholeDetector] | None:
    """Return the class for a detector, which may still have a fault."""
    names = class_names(model)
    if 'MaskFormer' in names:
        return MaskQueries
    if 'DetectionTransformer' in names:
        return QueryDetector
    if 'TwoStageDetector' in names:
        return TwoStages
    if 'SingleStageDetector' in names and getattr(model, 'bbox_head', None):
        of_yolox = 'YOLOXHead' in class_names(model.bbox_head)
        return YOLOX if of_yolox else DenseDetector
    return None


def whole_detector(model: nn.Module) -> WholeDetector | None:
    """Return a detector as one graph, or None if it cannot be one."""
    kind = kind_of(model)
    return None if kind is None or kind.fault(model) else kind(model)


def fault_of(model: nn.Module) -> str | None:
    """Return the name of the head that the graph lacks and why, or None."""
    if (kind := kind_of(model)) is None:
        return f'{type(model).__name__} is none of the known detectors'
    why = kind.fault(model)
    return why and f'{type(getattr(model, kind.head_name)).__name__}: {why}'


def _sample(images: Tensor) -> SimpleNamespace:
    """Return the sample that mmdet reads for an image without padding."""
    size = tuple(images.shape[2:])
    about = dict(img_shape=size, batch_input_shape=size)
    return SimpleNamespace(metainfo=about, **about)


def _with_names(function: FunctionType, **names: object) -> FunctionType:
    """Return a copy of a function with some of its global names replaced."""
    args = function.__name__, function.__defaults__, function.__closure__
    return FunctionType(function.__code__, function.__globals__ | names, *args)


def _keep_all(scores: Tensor, threshold: float, number: int, results: dict) -> tuple:
    """Replace mmdet's ``filter_scores_and_topk``; keep all boxes."""
    return scores, scores[:, 0], slice(None), results


def _length(values: Sequence | Tensor) -> int:
    """Return the length of a sequence, or 0 for a tensor, whose length may vary."""
    return 0 if isinstance(values, Tensor) else len(values)
