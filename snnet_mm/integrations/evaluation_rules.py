"""Rules by which evaluation knows classes of the mm packages, importing none."""

from collections.abc import Callable

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from snnet_mm.evaluation.extensions import (
    DRAWERS,
    EMPTY_METRICS,
    FORWARDS,
    IMAGE_STATISTICS,
    SAVING_KEYS,
    UNSIZED,
    WHOLE_DATA_METRICS,
)

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


def counts_missed_images(metric: BaseMetric) -> bool:
    """Tell mmdet's COCO metrics, to which images that were left out are missed."""
    return hasattr(metric, 'img_ids') and not hasattr(metric, 'only_seen_images')


def is_silent_on_nothing(metric: BaseMetric) -> bool:
    """Tell mmdet's COCO metric, which gives no names where nothing was detected."""
    return metric.default_prefix == 'coco' and hasattr(metric, 'proposal_nums')


def precision_of_nothing(metric: BaseMetric) -> dict[str, float]:
    """Return zeros by the names that mmdet's COCO metric gives otherwise."""
    kinds = [kind for kind in metric.metrics if kind in ('bbox', 'segm')]
    items = metric.metric_items or PRECISIONS
    return {f'{metric.prefix}/{k}_{item}': 0.0 for k in kinds for item in items}


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


def is_named(name: str) -> Callable[[BaseMetric], bool]:
    """Return a test of a metric's class, or one that it derives from."""
    return lambda metric: any(c.__name__ == name for c in type(metric).__mro__)


IMAGE_STATISTICS.extend(
    [
        (is_named('IoUMetric'), iou_by_image),
        (is_named('Accuracy'), hits_by_image),
        (is_named('RunningDepthMetric'), depth_by_image),
    ]
)
FORWARDS.append((lambda model: hasattr(model, 'roi_head'), run_two_stage))
# mmdet's detectors, whose boxes are in pixels of what the backbone has seen.
UNSIZED.append(
    lambda model: any(c.__name__ == 'BaseDetector' for c in type(model).__mro__)
)
# Of mmseg's and our metrics, and of mmdet's.
SAVING_KEYS.extend(['output_dir', 'outfile_prefix'])
WHOLE_DATA_METRICS.append((counts_missed_images, "type='StitchCocoMetric'"))
EMPTY_METRICS.append((is_silent_on_nothing, precision_of_nothing))
DRAWERS.append((lambda drawer: hasattr(drawer, 'visualize_cls'), draw_classified))
