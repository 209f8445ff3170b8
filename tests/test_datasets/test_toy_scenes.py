"""Generated data sets: the stream of scenes, and what pipelines get of them."""

import pickle

import numpy as np
from torch.utils.data import DataLoader

from snnet_mm.datasets import ToyInstances, ToyLabels, ToyObjects, ToyScenes
from snnet_mm.datasets.toy_drawing import DISK, SKY_DEPTH


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


def test_labels_tell_how_much_of_a_scene_is_objects():
    dataset, labels = ToyLabels(num_scenes=30, num_objects=(0, 8)), set()
    for i in range(30):
        share = dataset.draw(i).masks.any(0).mean()
        info = dataset.get_data_info(i)
        lower, upper = ((0, 0.1), (0.1, 0.3), (0.3, 1.1))[info['gt_label']]
        assert lower <= share < upper
        assert info['seg_fields'] == []
        labels.add(info['gt_label'])
    assert labels == {0, 1, 2}


def decode(run_lengths):
    """A mask from COCO's uncompressed run lengths, one run after the other."""
    counts = run_lengths['counts']
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape(run_lengths['size'], order='F')


def test_instances_are_what_is_seen_of_the_objects():
    dataset, objects = ToyInstances(num_scenes=30), ToyObjects(num_scenes=30)
    flags = []
    for i in range(30):
        found, scene = dataset.get_data_info(i)['instances'], dataset.draw(i)
        objects_of_scene = zip(scene.labels, scene.masks, strict=True)
        seen = [(label, mask) for label, mask in objects_of_scene if mask.any()]
        for instance, (label, mask) in zip(found, seen, strict=True):
            assert np.array_equal(decode(instance['mask']), mask)
            x1, y1, x2, y2 = map(int, instance['bbox'])
            inside = mask[y1:y2, x1:x2]
            assert inside.sum() == mask.sum()
            # The box is tight.
            assert inside[[0, -1]].any(axis=1).all()
            assert inside[:, [0, -1]].any(axis=0).all()
            assert instance['bbox_label'] == label - DISK
            assert instance['ignore_flag'] == (mask.sum() < 12)
            flags.append(instance['ignore_flag'])
        ones = [dict(instance, bbox_label=0) for instance in found]
        assert objects.get_data_info(i)['instances'] == ones
    assert len(flags) > 100
    assert set(flags) == {0, 1}
    assert ToyInstances(num_scenes=1, num_objects=(0, 0))[0]['instances'] == []


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
