"""Classification of images with mmpretrain."""

from collections.abc import Callable

import numpy as np
from mmengine.evaluator import BaseMetric
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from torch import Tensor, nn

from .base import ImageStatistics, Task, label_divergence, register_task

# Pixels of the shorter side of a drawn image, and of the longer one if enlarged.
MIN_SIDE, MAX_SIDE = 256, 4096


@register_task
class Classification(Task):
    """One class per image, or several labels."""

    name = 'classification'
    scope = 'mmpretrain'
    parts = 'snnet_mm.tasks.mmpretrain'
    classes = 'BaseClassifier', 'BaseRetriever', 'Accuracy', 'UniversalVisualizer'
    heads = ('head',)
    classifies = True
    full_maps = False
    higher = (
        'top1', 'top5', 'acc1', 'acc5', 'accuracy', 'precision', 'recall', 'f1-score',
        'map',
    )  # fmt: skip
    ranking = 'top1', 'map'
    inferencer = 'mmpretrain.apis', 'ImageClassificationInferencer'

    def divergence(self, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the divergence of labels for multi-label heads."""
        head = getattr(model, 'head', None)
        several = hasattr(getattr(head, 'active', head), 'thr')
        return label_divergence if several else super().divergence(model)

    def image_statistics(
        self, metric: BaseMetric, results: list
    ) -> dict[str, ImageStatistics]:
        """Return which images were classified correctly."""
        if 'pred_score' not in results[0]:
            return {}
        hits = [
            r['pred_score'].argmax().item() in r['gt_label'].tolist() for r in results
        ]
        return dict(top1=(np.array(hits)[:, None], np.ones((len(hits), 1)), 100))

    def draw(
        self,
        visualizer: Visualizer,
        name: str,
        image: np.ndarray,
        sample: BaseDataElement,
        **settings,
    ) -> None:
        """Draw on an image resized to fit text."""
        low, high = sorted(image.shape[:2])
        # Matplotlib draws at most 2 ** 16 pixels a side.
        side = max(min(MIN_SIDE, MAX_SIDE * low // high), low)
        visualizer.visualize_cls(image, sample, name=name, resize=side, **settings)
