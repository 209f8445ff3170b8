"""Pictures of predictions, a folder for each stitch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from mmengine import fileio
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

MIN_SIDE = 256  # pixels of the shorter side of a classified image


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
        out_dir: Path | None = None,
        show: bool = False,
        wait_time: float = 0,
    ) -> None:
        self.visualizer, self.out_dir = visualizer, out_dir
        self.show, self.wait_time = show, wait_time

    def __call__(
        self, stitch_id: int, data_batch: dict, outputs: Sequence[BaseDataElement]
    ) -> None:
        """Draw the predictions of one stitch for one batch."""
        for loaded, sample in zip(data_batch['inputs'], outputs, strict=True):
            path = Path(sample.img_path)
            out_file = None
            if self.out_dir is not None:
                folder = self.out_dir / f'stitch_{stitch_id}'
                if 'pred_label' in sample:
                    # In the folders of two classes names may be the same.
                    folder /= path.parent.name
                folder.mkdir(parents=True, exist_ok=True)
                out_file = folder / f'{path.stem}.png'
            draw_sample(
                self.visualizer,
                f'{path.name}, stitch {stitch_id}',
                _image_of(path, loaded.numpy(), sample.ori_shape[:2]),
                sample,
                show=self.show,
                wait_time=self.wait_time,
                out_file=str(out_file) if out_file else None,
            )


def draw_sample(
    visualizer: Visualizer,
    name: str,
    image: np.ndarray,
    sample: BaseDataElement,
    **settings,
) -> None:
    """Let mm's visualizer of the task draw a sample.

    mmpretrain's has a method for each task; small images are enlarged for its text.

    Args:
        visualizer: mm's visualizer.
        name: Name of the picture.
        image: The image ``(H, W, 3)`` in RGB.
        sample: What was predicted, and the truth.
        **settings: Arguments of the visualizer's method.
    """
    if not hasattr(visualizer, 'visualize_cls'):
        visualizer.add_datasample(name, image, data_sample=sample, **settings)
        return
    side = max(MIN_SIDE, min(image.shape[:2]))
    visualizer.visualize_cls(image, sample, name=name, resize=side, **settings)


def _image_of(path: Path, loaded: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The image (H, W, 3) in RGB: from its file or, if it has none, as it was loaded.

    Args:
        path: The image's path.
        loaded: The image (3, h, w) in BGR, as the pipeline gave it.
        shape: Height and width of the annotations.
    """
    if path.exists():
        encoded = np.frombuffer(fileio.get(str(path)), np.uint8)
        return cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB)
    image = np.ascontiguousarray(loaded[::-1].transpose(1, 2, 0))
    return cv2.resize(image, shape[::-1])
