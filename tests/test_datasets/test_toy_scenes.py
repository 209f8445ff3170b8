"""Generated data sets: the stream of scenes, and what pipelines get of them."""

import pickle

import numpy as np
from torch.utils.data import DataLoader

from snnet_mm.datasets import ToyScenes
from snnet_mm.datasets.toy_drawing import SKY_DEPTH


def assert_same(first, second):
    np.testing.assert_array_equal(first['img'], second['img'])
    np.testing.assert_array_equal(first['gt_seg_map'], second['gt_seg_map'])


def test_a_scene_depends_on_its_index_alone():
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


def test_depth_maps():
    dataset = ToyScenes(num_scenes=20, size=[32, 48], split='val', depth=True)
    info = dataset[12]
    assert info['seg_fields'] == ['gt_depth_map']
    depth = dataset.draw(12).depth
    np.testing.assert_array_equal(info['gt_depth_map'], depth)
    near = ToyScenes(20, [32, 48], 'val', depth=True, max_depth=20)[12]['gt_depth_map']
    assert (depth == SKY_DEPTH).any()
    assert ((depth > 20) & (depth < SKY_DEPTH)).any()
    np.testing.assert_array_equal(near, np.where(depth > 20, 0, depth))
    assert near.dtype == np.float32
