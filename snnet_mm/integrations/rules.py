"""Rules by which training and evaluation know classes of the mm packages."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from torch import nn

from snnet_mm.costs.extensions import (
    DATA_OF_STITCH,
    DRAWERS,
    FORWARDS,
    IMAGE_STATISTICS,
    METRIC_VALUES,
    SAVING_KEYS,
    UNSIZED,
    WHOLE_DATA_METRICS,
    Prepare,
    Values,
)
from snnet_mm.training.checking_hooks import ONE_CLASS

from .two_stage import run_two_stage

PRECISIONS = 'mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l'
DEPTH_METRICS = 'delta1', 'delta2', 'delta3', 'AbsRel', 'RMSE', 'log10'
MIN_SIDE = 256  # pixels of the shorter side of a classified image


def draw_classified(
    visualizer: Visualizer,
    name: str,
    image: np.ndarray,
    data_sample: BaseDataElement,
    **settings,
) -> None:
    """Draw with mmpretrain's visualizer, on an image large enough for its text."""
    side = max(MIN_SIDE, min(image.shape[:2]))
    visualizer.visualize_cls(image, data_sample, name=name, resize=side, **settings)


def coco_values(metric: BaseMetric, values: Values) -> Values:
    """Return mmdet's COCO metrics, 0 where nothing was found and NaN where undefined.

    pycocotools gives -1 where there are no annotated objects, such as small ones.
    """
    # LVIS's has other names; and what is only written to a file was not evaluated.
    if metric.default_prefix != 'coco' or metric.format_only:
        return values
    kinds = [kind for kind in metric.metrics if kind in ('bbox', 'segm')]
    items = metric.metric_items or PRECISIONS
    api = metric._coco_api
    least = 0.0 if api is None or api.anns else math.nan
    nothing = {f'{metric.prefix}/{k}_{item}': least for k in kinds for item in items}
    return nothing | {n: math.nan if v == -1 else v for n, v in values.items()}


@contextmanager
def galleries(model: nn.Module) -> Iterator[Prepare]:
    """Let a retriever compare images with a data set, as each stitch sees both."""

    def prepare() -> Callable[[], None]:
        model.prepare_prototype()
        return partial(setattr, model, 'prototype_vecs', model.prototype_vecs)

    try:
        yield prepare
    finally:
        model.prototype_inited = False  # the active stitch is another, or will be


def iou_by_image(results: list) -> dict[str, tuple]:
    """Return intersections and unions by image and class (mmseg's IoUMetric)."""
    above, below = (np.stack([np.asarray(r[i]) for r in results]) for i in (0, 1))
    return dict(mIoU=(above, below, 100))


def hits_by_image(results: list) -> dict[str, tuple]:
    """Return which images were classified right (mmpretrain's Accuracy)."""
    if 'pred_score' not in results[0]:
        return {}
    hits = [r['pred_score'].argmax().item() in r['gt_label'].tolist() for r in results]
    return dict(top1=(np.array(hits)[:, None], np.ones((len(hits), 1)), 100))


def depth_by_image(results: list) -> dict[str, tuple]:
    """Return the metrics of depth by image; those without truth do not count."""
    values = np.array(results)[..., None]
    seen = np.isfinite(values[:, 0])
    return {
        name: (np.where(seen, values[:, i], 0), seen, 1)
        for i, name in enumerate(DEPTH_METRICS)
    }


IMAGE_STATISTICS['IoUMetric'] = iou_by_image
IMAGE_STATISTICS['Accuracy'] = hits_by_image
IMAGE_STATISTICS['RunningDepthMetric'] = depth_by_image
DATA_OF_STITCH['ImageToImageRetriever'] = galleries
FORWARDS['TwoStageDetector'] = run_two_stage
UNSIZED['BaseDetector'] = True  # boxes are in pixels of what the backbone has seen
# Of mmseg's and our metrics, and of mmdet's.
SAVING_KEYS.extend(['output_dir', 'outfile_prefix'])
# To mmdet's, images that were left out are missed.
for name in ('CocoMetric', 'CocoPanopticMetric'):
    WHOLE_DATA_METRICS[name] = "type='StitchCocoMetric'"
WHOLE_DATA_METRICS['StitchCocoMetric'] = None
METRIC_VALUES['CocoMetric'] = coco_values
DRAWERS['UniversalVisualizer'] = draw_classified
# mmdet's RPNs are a ``bbox_head`` where they are trained alone; mmseg's STDC has an
# auxiliary head for boundaries.
ONE_CLASS.update(['RPNHead', 'GARPNHead', 'STDCHead'])
