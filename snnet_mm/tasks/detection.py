"""Detection and instance segmentation with mmdet."""

import math
from collections.abc import Callable, Iterator

from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from .base import Task, Values, class_names, register_task
from .detector_heads import two_stage_graphs
from .two_stage import most_boxes

# These run convolutions for all locations above a threshold, of which nothing says the
# most; they are run up to there.
UNBOUNDED = {'SOLO', 'SOLOv2'}
PRECISIONS = 'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l'


@register_task
class Detection(Task):
    """Boxes, and masks of instances."""

    name = 'detection'
    scope = 'mmdet'
    parts = 'snnet_mm.tasks.detection_parts'
    classes = 'BaseDetector', 'CocoMetric', 'CocoPanopticMetric'
    # Semantic heads have classes of their own, and an ``rpn_head`` has one.
    heads = (
        'bbox_head', 'mask_head', 'roi_head.bbox_head', 'roi_head.mask_head',
        'roi_head.mask_iou_head', 'roi_head.point_head', 'panoptic_head',
    )  # fmt: skip
    one_class = 'RPNHead', 'GARPNHead'  # a ``bbox_head`` where they are trained alone
    full_mode = 'predict'
    unsized = True  # boxes are in pixels of what the backbone has seen
    higher = (
        'map', 'ap50', 'ap75', 'pq', 'sq', 'rq',
        *(f'{kind}_{item.lower()}' for kind in ('bbox', 'segm') for item in PRECISIONS),
    )  # fmt: skip
    ranking = 'pq', 'bbox_map', 'segm_map'
    saving_keys = ('outfile_prefix',)
    inferencer = 'mmdet.apis', 'DetInferencer'

    def run(self, model: nn.Module, images: Tensor) -> object:
        """Run all that prediction runs, on the most boxes that there may be."""
        if UNBOUNDED & {*class_names(model)}:
            return super().run(model, images)
        with most_boxes(model, images):
            return model.predict(images, samples_of(images), rescale=False)

    def predict(
        self, model: nn.Module, images: Tensor, number: int
    ) -> tuple[Tensor, ...]:
        """Return the maps of all levels; later steps depend on the image."""
        return tuple(model.extract_feat(images))

    def replace_network(
        self, model: nn.Module, wrap: Callable[[Callable], Callable]
    ) -> None:
        model.extract_feat = wrap(model.extract_feat)

    def metric_values(self, metric: BaseMetric, values: Values) -> Values:
        """Return COCO metrics, 0 where nothing was found and NaN where undefined.

        pycocotools gives -1 where there are no annotated objects, such as small ones.
        """
        # LVIS's has other names; and what is only written to a file was not evaluated.
        coco = 'CocoMetric' in class_names(metric) and metric.default_prefix == 'coco'
        if not coco or metric.format_only:
            return values
        kinds = [kind for kind in metric.metrics if kind in ('bbox', 'segm')]
        items = metric.metric_items or PRECISIONS
        api = metric._coco_api
        least = 0.0 if api is None or api.anns else math.nan
        nothing = {
            f'{metric.prefix}/{k}_{item}': least for k in kinds for item in items
        }
        return nothing | {n: math.nan if v == -1 else v for n, v in values.items()}

    def metric_for_part(self, metric: BaseMetric) -> str | None:
        """Return what does not count images that were left out as missed."""
        exact = 'StitchCocoMetric' in class_names(metric)
        return None if exact else "type='StitchCocoMetric'"

    def head_graphs(
        self, model: nn.Module, maps: tuple[Tensor, ...]
    ) -> Iterator[tuple[str, nn.Module, list[str], tuple[Tensor, ...], dict]]:
        if 'TwoStageDetector' in class_names(model):
            yield from two_stage_graphs(model, maps)


def samples_of(images: Tensor) -> list:
    """Return data samples of images, which are as large as their batch."""
    sizes = 'img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'
    about = dict.fromkeys(sizes, tuple(images.shape[2:])) | dict(scale_factor=(1, 1))
    return [BaseDataElement(metainfo=about) for _ in images]
