"""Generated scenes as data sets of four tasks, for tests, demos and quick trainings."""

from collections.abc import Sequence

import cv2
import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from snnet_mm.runtime.image_io import run_lengths
from snnet_mm.utils import check

from .toy_drawing import CLASSES, DISK, Scene, draw_scene

SPLITS = ('train', 'val', 'test')
PALETTE = [(135, 206, 235), (60, 120, 60), (230, 60, 60), (160, 70, 190)]
PALETTE += [(240, 200, 40)]
MIN_VISIBLE = 12  # pixels; smaller objects are ignored


@DATASETS.register_module()
class ToyScenes(BaseDataset):
    """Generated scenes with segmentation maps or depth maps; no files.

    Scene ``i`` depends only on ``seed``, ``split`` and ``i``, in any process. Other
    versions of numpy and OpenCV may draw a different scene. Pipelines must not load
    images or maps from files; ``img_path`` only names the scene.

    Args:
        size: (H, W) of a scene in pixels.
        split: One of 'train', 'val' and 'test', which are independent.
        num_objects: Minimum and maximum number of objects in a scene.
        depth: Whether to return depth maps, in metres, instead of segmentation maps.
    """

    METAINFO = dict(classes=CLASSES, palette=PALETTE)

    def __init__(
        self,
        num_scenes: int = 256,
        size: Sequence[int] = (64, 64),
        split: str = 'train',
        seed: int = 0,
        num_objects: Sequence[int] = (1, 3),
        depth: bool = False,
        **kwargs,
    ) -> None:
        check(split in SPLITS, 'dataset.split', split, SPLITS)
        self.num_scenes, self.size = num_scenes, tuple(size)
        self.split, self.seed = split, seed
        self.num_objects, self.depth = tuple(num_objects), depth
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        return [dict(scene_index=index) for index in range(self.num_scenes)]

    def get_data_info(self, idx: int) -> dict:
        """Return 'img' (H, W, 3) uint8 BGR, ground truth, and keys set by loading."""
        info = super().get_data_info(idx)
        scene = self.draw(info['scene_index'])
        index, (height, width) = info['scene_index'], self.size
        path = f'toy_scenes/{self.split}/{index:06d}.png'
        info |= dict(img=scene.image, img_id=index, img_path=path)
        info |= dict(height=height, width=width, scale_factor=(1.0, 1.0))
        info |= dict(img_shape=self.size, ori_shape=self.size)
        info |= dict(reduce_zero_label=False, seg_fields=[])
        return info | self.truth_of(scene)

    def draw(self, scene_index: int) -> Scene:
        """Draw a scene; it depends only on seed, split and index."""
        # A spawn key prevents collisions of seed, split and index of any length.
        key = SPLITS.index(self.split), scene_index
        seeds = np.random.SeedSequence(self.seed, spawn_key=key)
        rng = np.random.default_rng(seeds)
        return draw_scene(rng, self.size, self.num_objects)

    def truth_of(self, scene: Scene) -> dict:
        """Return the ground truth of a scene under mm's keys."""
        if self.depth:
            return dict(gt_depth_map=scene.depth, seg_fields=['gt_depth_map'])
        return dict(gt_seg_map=scene.semantic, seg_fields=['gt_seg_map'])


@DATASETS.register_module()
class ToyObjects(ToyScenes):
    """Generated scenes with the boxes and masks of their objects; no files.

    All objects have one class, which is learnt in far fewer iterations. ``instances``
    contains the input of mmdet's ``LoadAnnotations``. Objects of less than 12 pixels
    have ``ignore_flag=1``. Metrics without an annotation file require ``'instances'``
    among the ``meta_keys`` of ``PackDetInputs``.
    """

    METAINFO = dict(classes=('object',), palette=[(220, 20, 60)])

    def truth_of(self, scene: Scene) -> dict:
        instances = []
        for mask in scene.masks:
            if mask.any():
                x, y, width, height = cv2.boundingRect(mask.astype(np.uint8))
                box = [float(edge) for edge in (x, y, x + width, y + height)]
                truth = dict(bbox=box, bbox_label=0, mask=run_lengths(mask))
                truth['ignore_flag'] = int(mask.sum() < MIN_VISIBLE)
                instances.append(truth)
        return dict(instances=instances)


@DATASETS.register_module()
class ToyLabels(ToyScenes):
    """Generated scenes labelled by the class of their nearest object; no files."""

    METAINFO = dict(classes=CLASSES[DISK:])

    def truth_of(self, scene: Scene) -> dict:
        return dict(gt_label=scene.labels[-1] - DISK)
