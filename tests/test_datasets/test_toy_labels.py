import numpy as np
import pytest

from snnet_mm.datasets import ToyLabels, ToyScenes


def test_a_scene_is_labelled_by_where_its_largest_object_is():
    labels = ToyLabels(num_scenes=30, num_objects=(1, 3))
    scenes = ToyScenes(num_scenes=30, num_objects=(1, 3))
    for i in range(30):
        info = labels[i]
        seen = [o.visible for o in labels.get_scene(i).instances]
        largest = seen[np.argmax([s.sum() for s in seen])]
        centre = (largest.sum(0) * np.arange(64)).sum() / largest.sum()
        lower, upper = ((0, 64 / 3), (64 / 3, 128 / 3), (128 / 3, 64))[info['gt_label']]
        assert lower <= centre < upper
        assert np.array_equal(info['img'], scenes[i]['img'])
        assert info['seg_fields'] == []
    assert {labels[i]['gt_label'] for i in range(30)} == {0, 1, 2}
    assert labels.metainfo['classes'] == ('left', 'middle', 'right')


def test_scenes_without_objects_are_refused():
    with pytest.raises(ValueError, match=r'num_objects=\(0, 2\): .* 1 or more'):
        ToyLabels(num_objects=(0, 2))
