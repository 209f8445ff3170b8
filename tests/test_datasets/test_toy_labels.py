import numpy as np
import pytest

from snnet_mm.datasets import ToyLabels, ToyScenes
from snnet_mm.datasets.scene_painter import DISK


def test_a_scene_has_the_class_of_which_most_is_seen():
    labels = ToyLabels(num_scenes=30, num_objects=(1, 3))
    scenes = ToyScenes(num_scenes=30, num_objects=(1, 3))
    for i in range(30):
        info = labels[i]
        seen = [
            (o.visible.sum(), o.label - DISK) for o in labels.get_scene(i).instances
        ]
        assert info['gt_label'] == max(seen)[1]
        assert np.array_equal(info['img'], scenes[i]['img'])
        assert info['seg_fields'] == []
    assert {labels[i]['gt_label'] for i in range(30)} == set(range(4))
    assert labels.metainfo['classes'] == ToyScenes.METAINFO['classes'][DISK:]


def test_scenes_without_objects_are_refused():
    with pytest.raises(ValueError, match=r'num_objects=\(0, 2\): .* 1 or more'):
        ToyLabels(num_objects=(0, 2))
