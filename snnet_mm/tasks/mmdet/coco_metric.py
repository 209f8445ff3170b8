"""COCO metrics for a sequence of stitches."""

import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout

import numpy as np
from mmdet.evaluation import CocoMetric
from mmdet.registry import METRICS
from mmdet.structures.mask import encode_mask_results
from mmengine.logging import MMLogger

from snnet_mm.utils import check

KEYS = 'test_evaluator.ann_file, test_dataloader.dataset'


@METRICS.register_module()
class StitchCocoMetric(CocoMetric):
    """mmdet's COCO metric, made exact for parts of a data set and poor stitches.

    mmdet's own metric counts unevaluated images as missed, reuses the first converted
    ground truth in all later evaluations, and returns no metrics if nothing was
    detected. Without ``ann_file``, annotations are read from the data samples.
    """

    def __init__(self, ann_file: str | None = None, **kwargs) -> None:
        super().__init__(ann_file=ann_file, **kwargs)
        self.ann_file = ann_file
        # A list, which mmdet allows, fails in pycocotools.
        self.iou_thrs = np.atleast_1d(self.iou_thrs)

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        if self.ann_file is None and any('instances' not in s for s in data_samples):
            raise ValueError(
                'there are no annotations to evaluate with; give an annotation file '
                "(config key: test_evaluator.ann_file), or let 'instances' of the data "
                'set through (config key: meta_keys of PackDetInputs in '
                'test_dataloader.dataset.pipeline)'
            )
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: Sequence[tuple[dict, dict]]) -> dict[str, float]:
        truths = [truth for truth, _ in results]
        self.img_ids = [truth['img_id'] for truth in truths]
        if self.ann_file is None:
            number = sum(len(truth['anns']) for truth in truths)
        else:
            number = len(self._coco_api.get_ann_ids(img_ids=self.img_ids))
        ok = self.format_only or number
        given = f'{len(truths)} images without an annotated object'
        check(ok, KEYS, given, 'at least one object')
        if not any(len(found['labels']) for _, found in results):
            results = [(truths[0], _nothing_in(*results[0])), *results[1:]]
        with redirect_stdout(io.StringIO()) as printed:
            metrics = super().compute_metrics(results)
        MMLogger.get_current_instance().info(printed.getvalue())
        if self.ann_file is None:
            # The converted ground truth covers these images only.
            self._coco_api = None
        return metrics


def _nothing_in(truth: Mapping, found: Mapping) -> dict:
    """Return one empty detection, because pycocotools rejects an empty list."""
    boxes, scores = np.zeros((1, 4), np.float32), np.zeros(1, np.float32)
    nothing = dict(found, bboxes=boxes, scores=scores, labels=np.zeros(1, np.int64))
    if 'masks' in found:
        empty = np.zeros((1, truth['height'], truth['width']), bool)
        nothing['masks'] = encode_mask_results(empty)
    return nothing
