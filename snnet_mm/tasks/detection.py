"""Detection and instance segmentation with mmdet."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from mmengine.evaluator import BaseMetric
from torch import Tensor, nn

from snnet_mm.utils import dicts_in
from snnet_mm.utils.replacing import replaced

from .base import Task, Values, class_names, register_task
from .detector_graphs import (
    fault_of,
    outputs_of,
    predict_one,
    samples_of,
    step_of,
)

# Settings of two-stage heads with which no box is dropped before ``max_per_img``.
ALL_BOXES = dict(score_thr=-1, iou_threshold=1, iou_thr=1, min_bbox_size=-1)
AP_ITEMS = 'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l'


@register_task
class Detection(Task):
    """Boxes and instance masks, or panoptic segments."""

    name = 'detection'
    scope = 'mmdet'
    parts = 'snnet_mm.tasks.mmdet'
    classes = 'BaseDetector', 'CocoMetric', 'CocoPanopticMetric'
    # Semantic heads have classes of their own, and an ``rpn_head`` has one.
    heads = (
        'bbox_head', 'mask_head', 'roi_head.bbox_head', 'roi_head.mask_head',
        'roi_head.mask_iou_head', 'roi_head.point_head', 'panoptic_head',
    )  # fmt: skip
    one_class = 'RPNHead', 'GARPNHead'  # the ``bbox_head`` of an RPN trained alone
    unsized = True  # boxes are in pixels of the backbone's input
    higher = (
        'map', 'ap50', 'ap75', 'pq', 'sq', 'rq',
        *(f'{kind}_{item.lower()}' for kind in ('bbox', 'segm') for item in AP_ITEMS),
    )  # fmt: skip
    ranking = 'pq', 'bbox_map', 'segm_map'
    saving_keys = ('outfile_prefix',)
    exact_metric = 'StitchCocoMetric'
    inferencer = 'mmdet.apis', 'DetInferencer'

    def full_mode(self, model: nn.Module) -> str:
        return 'predict'

    def run(self, model: nn.Module, images: Tensor) -> object:
        """Run all that prediction runs, but do not paste masks into images.

        Two-stage heads keep the maximum number of boxes, whatever the image.
        """
        with _keeping_all_boxes(model):
            return model.predict(images, samples_of(images), rescale=False)

    def outputs(self, model: nn.Module, images: Tensor) -> object:
        """Return the maps of a dense head, or the maps that other heads read."""
        maps = self.run_features(model, images)
        head = getattr(model, 'bbox_head', None)
        return head(maps) if 'BaseDenseHead' in class_names(head) else maps

    def predict(
        self, model: nn.Module, images: Tensor, number: int
    ) -> tuple[Tensor, ...]:
        """Return the objects of images, or maps if a graph would lack the heads."""
        if fault_of(model):
            return tuple(model.extract_feat(images))
        found = [predict_one(model, image) for image in images.split(1)]
        return tuple(map(torch.stack, zip(*found, strict=True)))

    def output_names(self, model: nn.Module) -> tuple[str, ...]:
        return () if fault_of(model) else outputs_of(model)

    def caller_steps(self, model: nn.Module) -> list[dict]:
        return [] if fault_of(model) else [step_of(model)]

    def takes_padding(self, model: nn.Module) -> bool:
        # A DETR of mmdet masks the padding.
        return 'DetectionTransformer' not in class_names(model)

    def without_heads(self, model: nn.Module) -> str | None:
        return fault_of(model)

    def metric_values(self, metric: BaseMetric, values: Values) -> Values:
        """Return COCO metrics, 0 if nothing was found and NaN if undefined.

        pycocotools returns -1 if a group, such as small objects, has no annotations.
        """
        # LVIS uses other names, and ``format_only`` writes results without evaluation.
        coco = 'CocoMetric' in class_names(metric) and metric.default_prefix == 'coco'
        if not coco or metric.format_only:
            return values
        kinds = [kind for kind in metric.metrics if kind in ('bbox', 'segm')]
        items = metric.metric_items or AP_ITEMS
        api = metric._coco_api
        empty = 0.0 if api is None or api.anns else math.nan
        nothing = {f'{k}_{item}': empty for k in kinds for item in items}
        found = {n: math.nan if v == -1 else v for n, v in values.items()}
        return found if nothing.keys() & found.keys() else nothing | found


@contextmanager
def _keeping_all_boxes(model: nn.Module) -> Iterator[None]:
    """Let two-stage heads drop no boxes, and mask heads paste no masks.

    Without a mask head, final boxes change no cost. Their thresholds stay then, as NMS
    of all boxes of thousands of classes is slow.
    """
    heads = [getattr(model, 'rpn_head', None), getattr(model, 'roi_head', None)]
    if not getattr(heads[1], 'with_mask', False):
        heads.pop()
    parts = [part for head in heads if head is not None for part in head.modules()]
    settings = [d for p in parts for d in dicts_in(getattr(p, 'test_cfg', None))]

    def unpasted(mask_preds: Tensor, results_list: list, *_, **__) -> list:
        return results_list

    with ExitStack() as stack:
        for each in settings:
            chosen = {key: ALL_BOXES[key] for key in ALL_BOXES.keys() & each.keys()}
            stack.enter_context(replaced(each, chosen))
        for part in parts:
            if 'FCNMaskHead' in class_names(part):
                soft = dict(predict_by_feat=unpasted)
                stack.enter_context(replaced(vars(part), soft))
        yield
