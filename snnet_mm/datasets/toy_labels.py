"""Generated scenes as a data set of classification."""

from __future__ import annotations

import numpy as np
from mmengine.registry import DATASETS

from .scene_painter import GROUND, Scene
from .toy_scenes import ToyScenes

CROWDS = ('sparse', 'scattered', 'crowded')
SHARES = (0.1, 0.3)  # of the image, where one label ends and the next begins


@DATASETS.register_module()
class ToyLabels(ToyScenes):
    """The scenes of :class:`ToyScenes`, labelled by how much of them is objects.

    ``gt_label`` is 0, 1 or 2 for less than 10 %, less than 30 %, or more of the pixels.
    The pipeline loads no image.

    Args:
        **kwargs: See :class:`ToyScenes`.

    Raises:
        ValueError: As :class:`ToyScenes` does.
    """

    METAINFO = {'classes': CROWDS}

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.truth = 'gt_label'

    def get_data_info(self, idx: int) -> dict:
        """Return what the pipeline starts from.

        Args:
            idx: Place in the data set, as in :class:`ToyScenes`.

        Returns:
            dict with 'img' (H, W, 3) uint8 BGR, 'gt_label', and what loading
            transforms would add.
        """
        return super().get_data_info(idx) | dict(seg_fields=[])

    def _truth_of(self, scene: Scene) -> int:
        return int(np.digitize((scene.semantic > GROUND).mean(), SHARES))
