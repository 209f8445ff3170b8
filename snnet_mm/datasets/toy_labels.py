"""Generated scenes as a data set of classification."""

from __future__ import annotations

import numpy as np
from mmengine.registry import DATASETS

from .scene_painter import Scene
from .toy_scenes import ToyScenes

PLACES = ('left', 'middle', 'right')


@DATASETS.register_module()
class ToyLabels(ToyScenes):
    """The scenes of :class:`ToyScenes`, labelled by where their largest object is.

    ``gt_label`` is the third of the image that the centre of the object lies in, as far
    as it is seen; it is the object of which most is seen. Scenes must not be flipped.
    The pipeline loads no image.

    Args:
        **kwargs: See :class:`ToyScenes`; at least one object in every scene.

    Raises:
        ValueError: If there may be scenes without objects, or as :class:`ToyScenes`
            does.
    """

    METAINFO = {'classes': PLACES}

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        if self.num_objects[0] < 1:
            raise ValueError(
                f'num_objects={self.num_objects}: a scene without objects has no '
                'label; allowed is 1 or more'
            )
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
        largest = max((i.visible for i in scene.instances), key=np.sum)
        _, columns = np.nonzero(largest)
        return int(len(PLACES) * columns.mean() / largest.shape[1])
