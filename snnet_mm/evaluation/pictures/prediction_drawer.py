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
        out_dir: Pictures are written to ``out_dir/stitch_<id>``, with the name of the
            image and those of its last two folders, as names of files may repeat.
        rgb: Whether pipelines load RGB images. Default: False, BGR.
    """

    def __init__(
        self, visualizer: Visualizer, out_dir: str | os.PathLike, rgb: bool = False
    ) -> None:
        self.visualizer, self.out_dir, self.rgb = visualizer, out_dir, rgb

    def __call__(
        self, stitch_id: int, data_batch: dict, outputs: Sequence[BaseDataElement]
    ) -> None:
        """Draw the predictions of one stitch for one batch."""
        inputs = data_batch['inputs']
        if not isinstance(inputs[0], Tensor):  # several augmentations: draw the first
            inputs = inputs[0]
        for loaded, sample in zip(inputs, outputs, strict=True):
            path = _path_of(sample)
            parts = (p for p in path.parts[-3:] if p not in (path.anchor, '..'))
            file = Path(self.out_dir, f'stitch_{stitch_id}', *parts).with_suffix('.png')
            file.parent.mkdir(parents=True, exist_ok=True)
            image = image_of(loaded, sample, self.rgb)
            name = f'{path.name}, stitch {stitch_id}'
            task = task_of(self.visualizer)
            task.draw(self.visualizer, name, image, sample, out_file=str(file))


def image_of(loaded: Tensor, sample: BaseDataElement, rgb: bool) -> np.ndarray:
    """Return the RGB image ``(H, W, 3)`` of a sample: its file, else the loaded one."""
    path = _path_of(sample)
    if path.is_file() and len(loaded) in (1, 3, 4):
        image = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)
        if image is not None:
            return image
    image = as_picture(loaded.numpy().transpose(1, 2, 0))
    image = np.ascontiguousarray(image[..., :: 1 if rgb else -1])
    height, width = sample.get('ori_shape', image.shape[:2])
    return cv2.resize(image, (width, height))


def _path_of(sample: BaseDataElement) -> Path:
    # Images of single-file data sets, such as CIFAR, have no path.
    return Path(sample.get('img_path') or f'{sample.get("sample_idx", 0)}')
