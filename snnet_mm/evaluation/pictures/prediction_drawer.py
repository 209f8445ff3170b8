"""Pictures of predictions, a folder for each stitch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmengine import fileio
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from ..extensions import DRAWERS


class PredictionDrawer:
    """Draws truth and prediction beside each other.

    Args:
        visualizer: mm's visualizer of the task.
        out_dir: Pictures go to ``out_dir/stitch_<id>/<name of the image>.png``; those
            of classifiers to a folder in it that is named as the image's. None for no
            files.
        show: Whether to open a window for every picture.
        wait_time: Seconds that a window stays; 0 waits for a key.
    """

    def __init__(
        self,
        visualizer: Visualizer,
        out_dir: str | os.PathLike | None = None,
        show: bool = False,
        wait_time: float = 0,
    ) -> None:
        self.visualizer, self.out_dir = visualizer, out_dir
        self.window = dict(show=show, wait_time=wait_time)

    def __call__(
        self, stitch_id: int, data_batch: dict, outputs: Sequence[BaseDataElement]
    ) -> None:
        """Draw the predictions of one stitch for one batch."""
        for loaded, sample in zip(data_batch['inputs'], outputs, strict=True):
            # Data sets in one file, such as CIFAR, have no paths.
            path = Path(sample.get('img_path') or f'{sample.get("sample_idx", 0)}')
            out_file = None
            if self.out_dir is not None:
                # In the folders of two classes names may be the same.
                group = path.parent.name if 'pred_label' in sample else ''
                folder = Path(self.out_dir, f'stitch_{stitch_id}', group)
                folder.mkdir(parents=True, exist_ok=True)
                out_file = str(folder / f'{path.stem}.png')
            draw_sample(
                self.visualizer,
                f'{path.name}, stitch {stitch_id}',
                _image_of(path, loaded.numpy(), sample.get('ori_shape')),
                sample,
                out_file=out_file,
                **self.window,
            )


def draw_sample(
    visualizer: Visualizer,
    name: str,
    image: np.ndarray,
    sample: BaseDataElement,
    **settings,
) -> None:
    """Let mm's visualizer of the task draw a sample on an RGB image ``(H, W, 3)``.

    ``settings`` are those of the visualizer's method.
    """
    for matches, draw in DRAWERS:
        if matches(visualizer):
            return draw(visualizer, name, image, sample, **settings)
    return visualizer.add_datasample(name, image, data_sample=sample, **settings)


def _image_of(
    path: Path, loaded: np.ndarray, shape: Sequence[int] | None
) -> np.ndarray:
    """Return an image (H, W, 3) in RGB: its file's or, without one, as loaded."""
    if path.is_file():
        encoded = np.frombuffer(fileio.get(str(path)), np.uint8)
        return cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB)
    image = np.ascontiguousarray(loaded[::-1].transpose(1, 2, 0))
    return image if shape is None else cv2.resize(image, shape[1::-1])
