"""Generated data sets: the stream of scenes, and what pipelines get of them."""

import pickle

import numpy as np
import pytest
from torch.utils.data import DataLoader

from snnet_mm.datasets import ToyLabels, ToyObjects, ToyScenes
from snnet_mm.datasets.toy_drawing import CLASSES, DISK, GROUND, MAX_DEPTH, SKY


def assert_same(first, second):
    np.testing.assert_array_equal(first['img'], second['img'])
    np.testing.assert_array_equal(first['gt_seg_map'], second['gt_seg_map'])


def test_toy_scenes_scene_depends_on_index_alone():
    """In a longer data set, a subset, a copy, and the process of a worker."""
    dataset, longer = ToyScenes(num_scenes=6), ToyScenes(num_scenes=20)
    expected = [dataset.get_data_info(i) for i in range(6)]
    np.random.seed(7)  # the global state has no say
    copy = pickle.loads(pickle.dumps(dataset))
    # A list, as the default collate function would make tensors of the metadata.
    served = sum(DataLoader(dataset, 3, num_workers=2, collate_fn=list), [])
    for i in reversed(range(6)):
        for info in (longer.get_data_info(i), copy.get_data_info(i), served[i]):
            assert_same(info, expected[i])
    listed = ToyScenes(num_scenes=10, indices=[5, 2], serialize_data=False)
    for reduced in (dataset.get_subset([5, 2]), listed):
        assert len(reduced) == 2
        assert_same(reduced[1], expected[2])
        assert reduced[1]['img_path'] == 'toy_scenes/train/000002.png'


def test_toy_scenes_depth_maps():
    """The foot of an object is as far away as the ground that it stands on."""
    dataset = ToyScenes(num_scenes=20, size=[32, 48], split='val', depth=True)
    info, scene = dataset[12], dataset.draw(12)
    assert info['seg_fields'] == ['gt_depth_map']
    np.testing.assert_array_equal(info['gt_depth_map'], scene.depth)
    assert info['gt_depth_map'].dtype == np.float32
    assert (scene.depth[scene.semantic == SKY] == MAX_DEPTH).all()
    ground = np.where(scene.semantic == GROUND, scene.depth, np.nan)
    assert (np.diff(np.nanmean(ground[-10:], axis=1)) < 0).all()
    (distance,) = np.unique(scene.depth[scene.masks[-1]])
    foot = np.flatnonzero(scene.masks[-1].any(axis=1))[-1]
    beside = scene.depth[foot, scene.semantic[foot] == GROUND][0]
    assert distance == pytest.approx(beside, rel=0.12)


def test_toy_labels_and_objects_of_scenes():
    """Classes of the nearest object, and boxes."""
    labels, objects = ToyLabels(num_scenes=20), ToyObjects(num_scenes=20)
    for i in range(20):
        scene = labels.draw(i)
        (nearest,) = np.unique(scene.semantic[scene.masks[-1]])
        assert labels[i]['gt_label'] == nearest - DISK
        assert labels.metainfo['classes'][nearest - DISK] == CLASSES[nearest]
        x, y, right, bottom = map(int, objects[i]['instances'][-1]['bbox'])
        box = np.zeros_like(scene.masks[-1])
        box[y:bottom, x:right] = True
        assert not (scene.masks[-1] & ~box).any()
        assert scene.masks[-1][y].any()
        assert scene.masks[-1][:, right - 1].any()
