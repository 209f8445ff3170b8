"""Generated scenes as a data set of classification."""

from __future__ import annotations

from mmengine.registry import DATASETS

from .scene_painter import CLASSES, DISK, Scene
from .toy_scenes import ToyScenes


@DATASETS.register_module()
class ToyLabels(ToyScenes):
    """The scenes of :class:`ToyScenes`, each with the class of one object.

    ``gt_label`` is that of the object of which most is seen. The pipeline loads no
    image.

    Args:
        **kwargs: See :class:`ToyScenes`; at least one object in every scene.

    Raises:
        ValueError: If there may be scenes without objects, or as :class:`ToyScenes`
            does.
    """

    METAINFO = {
        'classes': CLASSES[DISK:],
        'palette': ToyScenes.METAINFO['palette'][DISK:],
    }

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
        largest = max(scene.instances, key=lambda i: int(i.visible.sum()))
        return largest.label - DISK
