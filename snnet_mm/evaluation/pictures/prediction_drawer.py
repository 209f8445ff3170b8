"""Pictures of predictions, in one folder per stitch."""

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from torch import Tensor

from snnet_mm.tasks import task_of

from .figures import as_picture


class PredictionDrawer:
    """Draws ground truth and prediction side by side.

    Args:
        visualizer: mm's visualizer of the task.
        out_dir: Pictures are written to ``out_dir/stitch_<id>/<image name>.png``.
        root: The absolute folder that contains all images. Pictures keep the folders
            below it. Default: unknown, pictures of classifiers keep the parent folder.
        rgb: Whether pipelines load RGB images. Default: False, BGR.
    """

    def __init__(
        self,
        visualizer: Visualizer,
        out_dir: str | os.PathLike,
        root: str | None = None,
        rgb: bool = False,
    ) -> None:
        self.visualizer, self.out_dir = visualizer, out_dir
        self.root, self.rgb = root, rgb

    def __call__(
        self, stitch_id: int, data_batch: dict, outputs: Sequence[BaseDataElement]
    ) -> None:
        """Draw the predictions of one stitch for one batch."""
        inputs = data_batch['inputs']
        if not isinstance(inputs[0], Tensor):  # several augmentations: draw the first
            inputs = inputs[0]
        for loaded, sample in zip(inputs, outputs, strict=True):
            # Images of single-file data sets, such as CIFAR, have no path.
            path = Path(sample.get('img_path') or f'{sample.get("sample_idx", 0)}')
            # Several folders may contain the same file name.
            group, whole = '', Path(os.path.abspath(path))
            if self.root and whole.is_relative_to(self.root):
                group = whole.parent.relative_to(self.root)
            elif 'pred_label' in sample:
                group = path.parent.name
            folder = Path(self.out_dir, f'stitch_{stitch_id}', group)
            folder.mkdir(parents=True, exist_ok=True)
            file = str(folder / f'{path.stem}.png')
            image = None
            if path.is_file() and len(loaded) in (1, 3, 4):
                image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
            if image is None:  # no file, or one that OpenCV cannot read
                image = as_picture(loaded.numpy().transpose(1, 2, 0))
                image = np.ascontiguousarray(image[..., :: 1 if self.rgb else -1])
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
    """Draw a sample on an RGB image ``(H, W, 3)`` with mm's visualizer of the task.

    ``settings`` are passed to the visualizer's method.
    """
    task_of(visualizer).draw(visualizer, name, image, sample, **settings)
