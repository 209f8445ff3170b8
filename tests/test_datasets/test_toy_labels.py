import numpy as np

from snnet_mm.datasets import ToyLabels, ToyScenes


def test_a_scene_is_labelled_by_how_much_of_it_is_objects():
    labels = ToyLabels(num_scenes=30, num_objects=(0, 8))
    scenes = ToyScenes(num_scenes=30, num_objects=(0, 8))
    for i in range(30):
        info = labels[i]
        objects = [np.zeros((64, 64), bool)]
        objects += [o.visible for o in labels.get_scene(i).instances]
        share = np.any(objects, axis=0).sum() / 64**2
        lower, upper = ((0, 0.1), (0.1, 0.3), (0.3, 1.1))[info['gt_label']]
        assert lower <= share < upper
        assert np.array_equal(info['img'], scenes[i]['img'])
        assert info['seg_fields'] == []
    assert {labels[i]['gt_label'] for i in range(30)} == {0, 1, 2}
    assert labels.metainfo['classes'] == ('sparse', 'scattered', 'crowded')
