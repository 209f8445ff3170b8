"""Painting what a model predicts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

from snnet_mm.evaluation import draw_sample

from .init_inferencer import init_inferencer


def init_painter(
    model: nn.Module,
    opacity: float = 0.5,
    with_labels: bool | None = None,
    score_thr: float = 0.3,
) -> Callable[[np.ndarray], np.ndarray]:
    """What predicts an image with the active stitch and paints the prediction on it.

    Args:
        model: A model of :func:`init_model`.
        opacity: Opacity of what is painted, above 0 to 1.
        with_labels: Whether to write the names of classes, with the scores of
            detections; by default those of detections, but none on segmentations.
        score_thr: Detections below this score are left out.

    Returns:
        A function that takes a BGR image ``(H, W, 3)`` and gives it back painted; small
        images of classifiers enlarged.

    Raises:
        ValueError: As :func:`init_inferencer` does.
    """
    inferencer = init_inferencer(model)
    visualizer = inferencer.visualizer
    visualizer.dataset_meta, visualizer.alpha = model.dataset_meta, opacity
    # What each package's visualizer is told besides, by the config's default scope.
    settings = {
        'mmseg': dict(with_labels=bool(with_labels)),
        'mmdet': dict(pred_score_thr=score_thr),
        'mmpretrain': dict(),
    }[model.cfg.default_scope]

    if with_labels is False and model.cfg.default_scope == 'mmdet':
        # mmdet's visualizer has no setting for it.
        visualizer.draw_texts = lambda *args, **kwargs: visualizer

    def paint(image: np.ndarray) -> np.ndarray:
        found = inferencer(image, return_datasamples=True)
        found = found['predictions'] if isinstance(found, dict) else found
        # mmseg's gives the sample of a single image by itself.
        sample = found[0] if isinstance(found, list) else found
        rgb = np.ascontiguousarray(image[..., ::-1])
        draw_sample(visualizer, 'image', rgb, sample, draw_gt=False, **settings)
        return visualizer.get_image()[..., ::-1]

    return paint
