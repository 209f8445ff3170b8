"""The metrics of depth estimation."""

import math
from collections.abc import Sequence

import torch
from mmengine.evaluator import BaseMetric
from mmseg.registry import METRICS
from torch import Tensor

from snnet_mm.utils import check

from ..depth import METRICS as NAMES
from .dpt import check_depth_range

# Height and width, then first and last + 1 row and column of the evaluated part.
CROPS = {
    'eigen': (480, 640, 45, 471, 41, 601),  # NYU, without the border of the sensor
    'garg': (370, 1224, 151, 367, 44, 1180),  # KITTI, without sky and hood
}


@METRICS.register_module()
class RunningDepthMetric(BaseMetric):
    """The six metrics of SN-Netv2, appendix C, as means over images.

    Only six numbers per image are stored. ``delta1`` to ``delta3`` are the shares of
    pixels with ``max(pred / gt, gt / pred)`` below 1.25, 1.25^2 and 1.25^3 (the paper
    prints the inequality reversed). ``AbsRel`` is the mean of ``|pred - gt| / gt``,
    ``RMSE`` is in metres, and ``log10`` is the mean of ``|log10 pred - log10 gt|``.
    Predictions are clamped to the range of depths. Images without a valid pixel are
    skipped.

    Args:
        crop: ``'eigen'`` (NYU), ``'garg'`` (KITTI) or None for the whole image. Crops
            scale with the image.
    """

    def __init__(
        self,
        min_depth: float = 1e-3,
        max_depth: float = 10,
        crop: str | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        crops = (*CROPS, None)
        check(crop in crops, 'test_evaluator.crop', crop, crops)
        self.min_depth, self.max_depth = check_depth_range(min_depth, max_depth)
        self.crop = crop

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        for sample in data_samples:
            pred = sample['pred_depth_map']['data'].squeeze(0)
            truth = sample['gt_depth_map']['data'].squeeze(0).to(pred)
            ok, key = pred.shape == truth.shape, 'test_dataloader.dataset.pipeline'
            given = (
                f'{sample.get("img_path")}: depth map of {tuple(truth.shape)} pixels'
            )
            check(ok, key, given, f'the shape of the prediction, {tuple(pred.shape)}')
            self.results.append(self._measure(pred, truth))

    def compute_metrics(self, results: Sequence[Sequence[float]]) -> dict[str, float]:
        seen = [r for r in results if not math.isnan(r[0])]
        given = f'{len(results)} depth maps without a valid pixel'
        expected = f'depths between {self.min_depth} and {self.max_depth} m'
        check(seen, 'test_evaluator, depth_rescale_factor', given, expected)
        sums = map(math.fsum, zip(*seen, strict=True))
        return {n: s / len(seen) for n, s in zip(NAMES, sums, strict=True)}

    def _measure(self, pred: Tensor, truth: Tensor) -> tuple[float, ...]:
        rows, columns = crop_slices(self.crop, *truth.shape)
        pred, truth = pred[rows, columns].double(), truth[rows, columns].double()
        valid = (truth > self.min_depth) & (truth < self.max_depth)
        if not valid.any():
            return (math.nan,) * len(NAMES)
        pred, truth = pred[valid].clamp(self.min_depth, self.max_depth), truth[valid]
        ratio = torch.maximum(pred / truth, truth / pred)
        difference = pred - truth
        metrics = (
            *((ratio < 1.25**i).double().mean() for i in (1, 2, 3)),
            (difference.abs() / truth).mean(),
            difference.square().mean().sqrt(),
            (pred.log10() - truth.log10()).abs().mean(),
        )
        return tuple(m.item() for m in metrics)


def crop_slices(crop: str | None, height: int, width: int) -> tuple[slice, slice]:
    """Return rows and columns of the evaluated part of an image of any size."""
    if crop is None:
        return slice(height), slice(width)
    h, w, top, bottom, left, right = CROPS[crop]
    rows = slice(top * height // h, bottom * height // h)
    return rows, slice(left * width // w, right * width // w)
