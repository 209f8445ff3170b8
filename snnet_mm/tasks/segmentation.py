"""Segmentation with mmseg."""

from inspect import signature

import numpy as np
from mmengine.evaluator import BaseMetric
from torch import Tensor, nn

from .base import ImageStatistics, Task, is_method, register_task


class DenseTask(Task):
    """A task of mmseg, whose models predict maps at image size."""

    scope = 'mmseg'
    saving_keys = ('output_dir',)
    full_maps = False  # logits are resized to the images
    compiled = 'encode_decode'
    inferencer = 'mmseg.apis', 'MMSegInferencer'

    def full_mode(self, model: nn.Module) -> str:
        # mmseg's tensor mode fails for cascades such as PointRend.
        cascade = isinstance(model.decode_head, nn.ModuleList)
        return 'predict' if cascade else super().full_mode(model)

    def run(self, model: nn.Module, images: Tensor) -> object:
        """Run all that prediction runs on a whole image or window."""
        return self.predict(model, images, len(images))

    def outputs(self, model: nn.Module, images: Tensor) -> object:
        """Return logits at the head's size, or at image size.

        The latter for query-based heads, and where tensor mode fails.
        """
        head = getattr(model.decode_head, 'active', model.decode_head)
        reads_samples = len(signature(head.forward).parameters) > 1
        at_image_size = reads_samples or self.full_mode(model) == 'predict'
        return (self.run if at_image_size else super().outputs)(model, images)

    def predict(self, model: nn.Module, images: Tensor, number: int) -> Tensor:
        """Return maps at image size; query-based heads read the number of images."""
        return model.encode_decode(images, [dict(img_shape=images.shape[2:])] * number)

    def without_heads(self, model: nn.Module) -> str | None:
        head = model.decode_head
        loops = is_method(head, 'forward', 'MaskFormerHead')
        why = 'it loops over the images of a batch, whose number may vary'
        return f'{type(head).__name__}: {why}' if loops else None


@register_task
class Segmentation(DenseTask):
    """One class per pixel."""

    name = 'segmentation'
    classes = 'BaseSegmentor', 'IoUMetric'
    heads = 'decode_head', 'auxiliary_head'
    one_class = ('STDCHead',)  # an auxiliary head for boundaries
    classifies = True
    higher = (
        'miou', 'macc', 'aacc', 'mdice', 'mfscore', 'mprecision', 'mrecall', 'iou',
        'dice',
    )  # fmt: skip
    ranking = 'miou', 'mdice', 'mfscore'

    def image_statistics(
        self, metric: BaseMetric, results: list
    ) -> dict[str, ImageStatistics]:
        """Return intersections and unions by image and class."""
        above, below = (np.stack([np.asarray(r[i]) for r in results]) for i in (0, 1))
        return dict(mIoU=(above, below, 100))
