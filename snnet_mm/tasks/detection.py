"""Detection and instance segmentation with mmdet."""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache, partial

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import Tensor, nn

from snnet_mm.runtime.detection import (
    Detections,
    Panoptic,
    choose_objects,
    choose_queries,
    place_objects,
)
from snnet_mm.utils import dicts_in

from .base import Task, Values, class_names, register_task
from .whole_detectors import fault_of, whole_detector

# Settings of two-stage heads with which no box is dropped before ``max_per_img``.
ALL_BOXES = dict(score_thr=-1, iou_threshold=1, iou_thr=1, min_bbox_size=-1)
PRECISIONS = 'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l'


@register_task
class Detection(Task):
    """Boxes and instance masks, or panoptic segments."""

    name = 'detection'
    scope = 'mmdet'
    parts = 'snnet_mm.tasks.detection_parts'
    classes = 'BaseDetector', 'CocoMetric', 'CocoPanopticMetric'
    # Semantic heads have classes of their own, and an ``rpn_head`` has one.
    heads = (
        'bbox_head', 'mask_head', 'roi_head.bbox_head', 'roi_head.mask_head',
        'roi_head.mask_iou_head', 'roi_head.point_head', 'panoptic_head',
    )  # fmt: skip
    one_class = 'RPNHead', 'GARPNHead'  # the ``bbox_head`` of an RPN trained alone
    full_mode = 'predict'
    unsized = True  # boxes are in pixels of the backbone's input
    higher = (
        'map', 'ap50', 'ap75', 'pq', 'sq', 'rq',
        *(f'{kind}_{item.lower()}' for kind in ('bbox', 'segm') for item in PRECISIONS),
    )  # fmt: skip
    ranking = 'pq', 'bbox_map', 'segm_map'
    saving_keys = ('outfile_prefix',)
    inferencer = 'mmdet.apis', 'DetInferencer'

    def run(self, model: nn.Module, images: Tensor) -> object:
        """Run all that prediction runs, but do not paste masks into images.

        Two-stage heads keep as many boxes as they may, whatever the image.
        """
        with _keeping_all_boxes(model):
            return model.predict(images, samples_of(images), rescale=False)

    def outputs(self, model: nn.Module, images: Tensor) -> object:
        """Return the maps of a dense head, or the maps that other heads read."""
        dense = 'BaseDenseHead' in class_names(getattr(model, 'bbox_head', None))
        return (super().outputs if dense else self.run_features)(model, images)

    def predict(
        self, model: nn.Module, images: Tensor, number: int
    ) -> tuple[Tensor, ...]:
        """Return the outputs of a whole detector, or maps if the graph has no heads."""
        if (whole := whole_detector(model)) is not None:
            return whole.predict(images)
        return tuple(model.extract_feat(images))

    def replace_network(self, model: nn.Module, wrap: Callable[..., Callable]) -> None:
        if (whole := whole_detector(model)) is None:
            model.extract_feat = wrap(model.extract_feat)
        else:
            conclude = partial(_concluded, model, cache(whole.step))
            model.predict = wrap(model.predict, conclude)

    def output_names(self, model: nn.Module) -> tuple[str, ...]:
        whole = whole_detector(model)
        return () if whole is None else whole.outputs

    def caller_steps(self, model: nn.Module, size: tuple[int, int]) -> list[dict]:
        whole = whole_detector(model)
        return [] if whole is None else [whole.step(size)]

    def reordered(self, model: nn.Module) -> float:
        """Return a share for detectors that rank proposals.

        Two proposals of almost equal score may swap their queries, and NMS may keep the
        other one.
        """
        ranks = getattr(model, 'as_two_stage', False) or self.takes_one(model)
        return 0.05 if ranks else 0.0

    def takes_one(self, model: nn.Module) -> bool:
        whole = whole_detector(model)
        return whole is not None and whole.takes_one

    def without_heads(self, model: nn.Module, formats: Collection[str]) -> str | None:
        other = {'openvino', 'torch-export'} & {*formats}
        if self.takes_one(model) and other:
            return 'detectors with two stages have graphs in --format onnx alone'
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
        items = metric.metric_items or PRECISIONS
        api = metric._coco_api
        least = 0.0 if api is None or api.anns else math.nan
        nothing = {f'{k}_{item}': least for k in kinds for item in items}
        found = {n: math.nan if v == -1 else v for n, v in values.items()}
        return found if nothing.keys() & found.keys() else nothing | found

    def metric_for_part(self, metric: BaseMetric) -> str | None:
        """Return the metric that does not count omitted images as missed."""
        exact = 'StitchCocoMetric' in class_names(metric)
        return None if exact else "type='StitchCocoMetric'"


@contextmanager
def _keeping_all_boxes(model: nn.Module) -> Iterator[None]:
    """Let two-stage heads drop no boxes, and mask heads paste no masks."""
    heads = (getattr(model, name, None) for name in ('rpn_head', 'roi_head'))
    parts = [part for head in heads if head is not None for part in head.modules()]
    settings = [d for p in parts for d in dicts_in(getattr(p, 'test_cfg', None))]
    before = [{k: d[k] for k in ALL_BOXES.keys() & d.keys()} for d in settings]
    pasting = [part for part in parts if 'FCNMaskHead' in class_names(part)]

    def unpasted(mask_preds: Tensor, results_list: list, *_, **__) -> list:
        return results_list

    try:
        for each, old in zip(settings, before, strict=True):
            each.update({key: ALL_BOXES[key] for key in old})
        for part in pasting:
            part.predict_by_feat = lambda mask_preds, results_list, *_, **__: (
                results_list
            )
        yield
    finally:
        for each, old in zip(settings, before, strict=True):
            each.update(old)
        for part in pasting:
            del part.predict_by_feat


def samples_of(images: Tensor) -> list:
    """Return data samples of images without padding or resizing."""
    sizes = 'img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'
    about = dict.fromkeys(sizes, tuple(images.shape[2:])) | dict(scale_factor=(1, 1))
    return [BaseDataElement(metainfo=about) for _ in images]


def _concluded(
    model: nn.Module,
    step_for: Callable[[tuple[int, int]], dict],
    outputs: tuple[Tensor, ...],
    samples: list[BaseDataElement],
) -> list[BaseDataElement]:
    """Run the caller's step on a graph's outputs; add the results to the samples."""
    results, step = [], step_for(tuple(samples[0].batch_input_shape))
    for *found, sample in zip(*(x.numpy() for x in outputs), samples, strict=True):
        within, segments = sample.img_shape, None
        if step['step'] == 'objects':
            objects = choose_objects(found, step, sample.scale_factor, within)
        elif step['step'] == 'queries':
            objects = choose_queries(found, step, sample.ori_shape, within)
        else:
            objects = place_objects(found, step, sample.ori_shape, sample.scale_factor)
        if isinstance(objects, Panoptic):
            segments, objects = objects
        results.append(_results(objects, segments))
    if step['step'] != 'queries':
        results = [found['ins_results'] for found in results]
    return model.add_pred_to_datasample(samples, results)


def _results(objects: Detections | None, segments: np.ndarray | None) -> dict:
    """Convert objects and segments to mmdet's results."""
    results = {}
    if objects is not None:
        boxes, scores, labels, masks = objects
        found = InstanceData(bboxes=boxes, scores=scores, labels=labels)
        results['ins_results'] = found.to_tensor()
        if masks is not None:
            results['ins_results'].masks = torch.from_numpy(masks)
    if segments is not None:
        data = torch.from_numpy(segments)[None]
        results['pan_results'] = PixelData(sem_seg=data)
    return results
