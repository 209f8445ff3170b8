"""Pictures of predictions, a folder for each stitch."""

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from torch import Tensor

from snnet_mm.tasks import task_of


class PredictionDrawer:
    """Draws truth and prediction beside each other.

    Args:
        visualizer: mm's visualizer of the task.
        out_dir: Pictures go to ``out_dir/stitch_<id>/<name of the image>.png``; those
            of classifiers to a folder in it that is named as the image's.
    """

    def __init__(self, visualizer: Visualizer, out_dir: str | os.PathLike) -> None:
        self.visualizer, self.out_dir = visualizer, out_dir

    def __call__(
        self, stitch_id: int, data_batch: dict, outputs: Sequence[BaseDataElement]
    ) -> None:
        """Draw the predictions of one stitch for one batch."""
        inputs = data_batch['inputs']
        if not isinstance(inputs[0], Tensor):  # the first of several augmentations
            inputs = inputs[0]
        for loaded, sample in zip(inputs, outputs, strict=True):
            # Data sets in one file, such as CIFAR, have no paths.
            path = Path(sample.get('img_path') or f'{sample.get("sample_idx", 0)}')
            # In the folders of two classes names may be the same.
            group = path.parent.name if 'pred_label' in sample else ''
            folder = Path(self.out_dir, f'stitch_{stitch_id}', group)
            folder.mkdir(parents=True, exist_ok=True)
            file = str(folder / f'{path.stem}.png')
            if path.is_file():
                image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
            else:
                image = np.ascontiguousarray(loaded.numpy()[::-1].transpose(1, 2, 0))
                height, width = sample.get('ori_shape', image.shape[:2])
                image = cv2.resize(image, (width, height))
            name = f'{path.name}, stitch {stitch_id}'
            draw_sample(self.visualizer, name, image, sample, out_file=file)


def draw_sample(
    visualizer: Visualizer,
    name: str,
    image: np.ndarray,
    sample: BaseDataElement,
    **settings,
) -> None:
    """Let mm's visualizer of the task draw a sample on an RGB image ``(H, W, 3)``.

    ``settings`` are arguments of the visualizer's method.
    """
    task_of(visualizer).draw(visualizer, name, image, sample, **settings)
