"""Generated scenes as a data set of detection and instance segmentation."""

import numpy as np
from mmengine.registry import DATASETS

from .scene_painter import CLASSES, DISK, Scene, box_around
from .toy_scenes import ToyScenes

MIN_VISIBLE = 12  # pixels; what shows less of itself is no fair question


@DATASETS.register_module()
class ToyInstances(ToyScenes):
    """The objects of :class:`ToyScenes`, as mmdet's data sets give them.

    ``instances`` holds, for every object of which something is seen, ``bbox`` and
    ``mask`` (uncompressed COCO run lengths) of what is seen, ``bbox_label``, and
    ``ignore_flag``, which is 1 if fewer than 12 pixels are. mmdet's
    ``LoadAnnotations`` turns them into boxes and masks; the pipeline loads no image.
    Metrics that have no annotation file need ``'instances'`` among the ``meta_keys``
    of ``PackDetInputs``.

    Args:
        **kwargs: See :class:`ToyScenes`. ``num_objects=(0, 0)`` paints scenes without
            objects.
    """

    METAINFO = {
        'classes': CLASSES[DISK:],
        'palette': [tuple(c) for c in ToyScenes.METAINFO['palette'][DISK:]],
    }

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.truth = 'instances'

    def get_data_info(self, idx: int) -> dict:
        """Return what the pipeline starts from.

        Args:
            idx: Place in the data set, as in :class:`ToyScenes`.

        Returns:
            dict with 'img' (H, W, 3) uint8 BGR, 'instances', 'img_id', which is the
            scene's own index, and what loading transforms would add.
        """
        info = super().get_data_info(idx)
        info.update(seg_fields=[], img_id=info['scene_index'], scale_factor=(1.0, 1.0))
        return info

    def _truth_of(self, scene: Scene) -> list[dict]:
        return [
            dict(
                bbox=[float(x) for x in box_around(i.visible)],
                bbox_label=i.label - DISK,
                mask=run_lengths(i.visible),
                ignore_flag=int(i.visible.sum() < MIN_VISIBLE),
            )
            for i in scene.instances
            if i.visible.any()
        ]


@DATASETS.register_module()
class ToyObjects(ToyInstances):
    """:class:`ToyInstances` with one class for objects of all kinds.

    Where an object is takes far fewer iterations to learn than which one it is.

    Args:
        **kwargs: See :class:`ToyScenes`.
    """

    METAINFO = {'classes': ('object',), 'palette': [(220, 20, 60)]}

    def _truth_of(self, scene: Scene) -> list[dict]:
        return [dict(i, bbox_label=0) for i in super()._truth_of(scene)]


def run_lengths(mask: np.ndarray) -> dict:
    """A mask (H, W) as COCO's uncompressed run lengths, column by column.

    The runs are in turn of 0 and of 1; the first one, of 0, may be empty.
    """
    flat = mask.ravel(order='F')
    ends = np.append(np.flatnonzero(flat[1:] != flat[:-1]) + 1, flat.size)
    counts = np.diff(ends, prepend=0).tolist()
    return dict(size=list(mask.shape), counts=[0, *counts] if flat[0] else counts)
