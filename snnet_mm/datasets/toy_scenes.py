"""Generated scenes as data sets of four tasks, for tests, demos and quick trainings."""

from collections.abc import Sequence

import cv2
import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from snnet_mm.utils import check

from .toy_drawing import CLASSES, DISK, FEET, GROUND, SKY_DEPTH, Scene, draw_scene

SPLITS = ('train', 'val', 'test')
PALETTE = [(135, 206, 235), (60, 120, 60), (230, 60, 60), (40, 160, 230)]
PALETTE += [(240, 200, 40), (200, 60, 200)]
MIN_SIDE = 16  # pixels
MIN_VISIBLE = 12  # pixels; smaller objects are ignored
# Labels by the share of pixels on objects: less than 10 %, less than 30 %, or more.
CROWDS = ('sparse', 'scattered', 'crowded')
SHARES = (0.1, 0.3)


@DATASETS.register_module()
class ToyScenes(BaseDataset):
    """Generated scenes with segmentation maps or depth maps; no files.

    Scene ``i`` depends only on ``seed``, ``split`` and ``i``, in any process. Other
    versions of numpy and OpenCV may draw a different scene. Pipelines must not load
    images or maps from files; ``img_path`` only names the scene.

    Args:
        size: (H, W) of a scene in pixels, 16 or more each.
        split: One of 'train', 'val' and 'test', which are independent.
        num_objects: Minimum and maximum number of objects in a scene.
        depth: Whether to return depth maps, in metres, instead of segmentation maps.
        feet: Range of the rows that objects stand in, as fractions of the height below
            the horizon. The lower an object stands, the nearer and larger it is.
        grey: Whether sky and ground are grey, so that objects stand out.
        max_depth: Maximum valid depth in metres. Farther pixels get depth 0, which is
            invalid. The ground ends at 40 m and the sky is at 80 m.
    """

    METAINFO = dict(classes=CLASSES, palette=PALETTE)

    def __init__(
        self,
        num_scenes: int = 256,
        size: Sequence[int] = (64, 64),
        split: str = 'train',
        seed: int = 0,
        num_objects: Sequence[int] = (3, 7),
        depth: bool = False,
        feet: Sequence[float] = FEET,
        grey: bool = False,
        max_depth: float = SKY_DEPTH,
        **kwargs,
    ) -> None:
        check(split in SPLITS, 'dataset.split', split, SPLITS)
        check(min(size) >= MIN_SIDE, 'dataset.size', size, '(H, W), 16 or more')
        self.num_scenes, self.size = num_scenes, tuple(size)
        self.split, self.seed = split, seed
        self.num_objects, self.depth = tuple(num_objects), depth
        self.feet, self.grey, self.max_depth = tuple(feet), grey, max_depth
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
        return draw_scene(rng, self.size, self.num_objects, self.feet, self.grey)

    def truth_of(self, scene: Scene) -> dict:
        """Return the ground truth of a scene under mm's keys."""
        if self.depth:
            depth = scene.depth * (scene.depth <= self.max_depth)
            return dict(gt_depth_map=depth, seg_fields=['gt_depth_map'])
        return dict(gt_seg_map=scene.semantic, seg_fields=['gt_seg_map'])


@DATASETS.register_module()
class ToyInstances(ToyScenes):
    """Generated scenes with the boxes and masks of their objects; no files.

    ``instances`` contains the input of mmdet's ``LoadAnnotations``. Objects of less
    than 12 pixels have ``ignore_flag=1``. Metrics without an annotation file require
    ``'instances'`` among the ``meta_keys`` of ``PackDetInputs``.
    """

    METAINFO = dict(classes=CLASSES[DISK:], palette=PALETTE[DISK:])

    def truth_of(self, scene: Scene) -> dict:
        instances = []
        for label, mask in zip(scene.labels, scene.masks, strict=True):
            if mask.any():
                x, y, width, height = cv2.boundingRect(mask.astype(np.uint8))
                box = [float(edge) for edge in (x, y, x + width, y + height)]
                truth = dict(bbox=box, bbox_label=label - DISK, mask=_run_lengths(mask))
                truth['ignore_flag'] = int(mask.sum() < MIN_VISIBLE)
                instances.append(truth)
        return dict(instances=instances)


@DATASETS.register_module()
class ToyObjects(ToyInstances):
    """:class:`ToyInstances` with one class, which is learnt in far fewer iterations."""

    METAINFO = dict(classes=('object',), palette=[(220, 20, 60)])

    def truth_of(self, scene: Scene) -> dict:
        instances = super().truth_of(scene)['instances']
        return dict(instances=[dict(i, bbox_label=0) for i in instances])


@DATASETS.register_module()
class ToyLabels(ToyScenes):
    """Generated scenes labelled by object coverage: below 10 %, below 30 %, or more."""

    METAINFO = dict(classes=CROWDS)

    def truth_of(self, scene: Scene) -> dict:
        share = (scene.semantic > GROUND).mean()
        return dict(gt_label=int(np.digitize(share, SHARES)))


def _run_lengths(mask: np.ndarray) -> dict:
    """Return COCO's run lengths of a mask, in column-major order."""
    flat = np.append(0, mask.ravel(order='F'))
    counts = np.diff(np.flatnonzero(np.diff(flat)), prepend=0, append=flat.size - 1)
    return dict(size=list(mask.shape), counts=counts.tolist())
