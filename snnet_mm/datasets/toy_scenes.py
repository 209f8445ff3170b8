"""Generated scenes as a data set of segmentation and depth that needs no files."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy

import numpy as np
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS

from .scene_painter import CLASSES, Scene, paint_scene

SPLITS = ('train', 'val', 'test')
MIN_SIDE = 16


@DATASETS.register_module()
class ToyScenes(BaseDataset):
    """Seeded outdoor scenes for tests, demos and quick trainings.

    Scene ``i`` depends on ``seed``, ``split`` and ``i`` (and on how scenes look:
    ``size`` and ``num_objects``) and on nothing else: any process can paint any scene
    on its own, and a longer data set begins with the scenes of a shorter one. Splits
    are independent streams of the same distribution.

    The pipeline starts with the image and the segmentation map (or the depth map)
    already there, so it holds no loading transform. ``img_path`` names the scene, as
    metrics and visualisers expect, but there is no such file: do not read it.

    Args:
        num_scenes: Number of scenes.
        size: (H, W) of a scene in pixels, 16 or more each.
        split: One of 'train', 'val' and 'test'.
        seed: Non-negative seed of all splits.
        num_objects: Least and greatest number of objects in a scene.
        depth: Whether to serve the depth map, in metres, in place of the segmentation
            map.
        cache: Whether to keep painted scenes (4 bytes per pixel, 7 with depth) in the
            memory of the process that asked for them, for repeated evaluation.
        pipeline: Transforms, as configs or callables.
        metainfo: Replaces entries of :attr:`METAINFO`. Classes may be renamed, but
            their number stays.
        test_mode: Whether a pipeline that returns None is an error.
        indices: Serve only the first few scenes, or those listed.
        serialize_data: See :class:`mmengine.dataset.BaseDataset`.
        lazy_init: See :class:`mmengine.dataset.BaseDataset`.
        max_refetch: See :class:`mmengine.dataset.BaseDataset`.

    Raises:
        ValueError: If an argument is outside the values above.
    """

    METAINFO = {
        'classes': CLASSES,
        'palette': [
            [135, 206, 235],
            [60, 120, 60],
            [230, 60, 60],
            [40, 160, 230],
            [240, 200, 40],
            [200, 60, 200],
        ],
    }

    def __init__(
        self,
        num_scenes: int = 256,
        size: Sequence[int] = (64, 64),
        split: str = 'train',
        seed: int = 0,
        num_objects: Sequence[int] = (3, 7),
        depth: bool = False,
        cache: bool = True,
        pipeline: Sequence[dict | Callable] = (),
        metainfo: Mapping | None = None,
        test_mode: bool = False,
        indices: int | Sequence[int] | None = None,
        serialize_data: bool = True,
        lazy_init: bool = False,
        max_refetch: int = 1000,
    ) -> None:
        _check_count('num_scenes', num_scenes, least=1)
        _check_count('seed', seed, least=0)
        _check_pair('size', size, least=MIN_SIDE, meaning='(H, W)')
        _check_pair('num_objects', num_objects, least=0, meaning='(least, greatest)')
        if num_objects[0] > num_objects[1]:
            raise ValueError(
                f'num_objects={num_objects!r}: the least number must not exceed the '
                'greatest one'
            )
        if split not in SPLITS:
            raise ValueError(f'split={split!r}: must be one of {SPLITS}')
        self.num_scenes = num_scenes
        self.size = tuple(size)
        self.split = split
        self.seed = seed
        self.num_objects = tuple(num_objects)
        self.truth = 'gt_depth_map' if depth else 'gt_seg_map'
        self._cache: dict[int, tuple] | None = {} if cache else None
        super().__init__(
            metainfo=metainfo,
            indices=indices,
            serialize_data=serialize_data,
            pipeline=pipeline,
            test_mode=test_mode,
            lazy_init=lazy_init,
            max_refetch=max_refetch,
        )
        names, own = self.metainfo['classes'], self.METAINFO['classes']
        if len(names) != len(own):
            raise ValueError(
                f"metainfo['classes']={names!r}: must name {len(own)} classes, "
                f'as they stand for {own}'
            )

    def load_data_list(self) -> list[dict]:
        """List the scenes; they are painted when asked for."""
        return [{'scene_index': index} for index in range(self.num_scenes)]

    def get_data_info(self, idx: int) -> dict:
        """Return what the pipeline starts from.

        Args:
            idx: Place in the data set, which is not the scene's own index if the data
                set is a subset.

        Returns:
            dict with 'img' (H, W, 3) uint8 BGR, 'gt_seg_map' (H, W) uint8 or
            'gt_depth_map' (H, W) float32, and what loading transforms would add. The
            arrays are the caller's to change.
        """
        info = super().get_data_info(idx)
        scene_index = info['scene_index']
        image, truth = self._image_and_truth(scene_index)
        info.update(
            img=image,
            seg_fields=[self.truth],
            img_shape=self.size,
            ori_shape=self.size,
            height=self.size[0],
            width=self.size[1],
            img_path=f'toy_scenes/{self.split}/{scene_index:06d}.png',
            reduce_zero_label=False,
        )
        info[self.truth] = truth
        return info

    def get_scene(self, idx: int) -> Scene:
        """Paint the whole scene, with its depth and instances.

        Args:
            idx: Place in the data set, as in :meth:`get_data_info`.
        """
        return self._paint(super().get_data_info(idx)['scene_index'])

    def _paint(self, scene_index: int) -> Scene:
        # A spawn key, not a list of seeds: it keeps (seed, split, index) apart for
        # seeds of any length.
        key = (SPLITS.index(self.split), scene_index)
        sequence = np.random.SeedSequence(self.seed, spawn_key=key)
        rng = np.random.Generator(np.random.PCG64(sequence))
        return paint_scene(rng, self.size, self.num_objects)

    def _image_and_truth(self, scene_index: int) -> tuple:
        if self._cache is not None and scene_index in self._cache:
            return deepcopy(self._cache[scene_index])
        scene = self._paint(scene_index)
        known = scene.image, self._truth_of(scene)
        if self._cache is not None:
            self._cache[scene_index] = deepcopy(known)
        return known

    def _truth_of(self, scene: Scene) -> np.ndarray:
        """What of a scene is served besides its image."""
        return scene.depth if self.truth == 'gt_depth_map' else scene.semantic


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_count(key: str, value: object, least: int) -> None:
    if not _is_count(value, least):
        raise ValueError(f'{key}={value!r}: must be an integer of {least} or more')


def _check_pair(key: str, value: object, least: int, meaning: str) -> None:
    is_pair = isinstance(value, (tuple, list)) and len(value) == 2
    if not is_pair or not all(_is_count(number, least) for number in value):
        raise ValueError(
            f'{key}={value!r}: must be a pair {meaning} of integers of {least} or more'
        )
