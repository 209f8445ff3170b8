import numpy as np
import pytest

from snnet_mm.datasets import ToyInstances, ToyObjects, ToyScenes
from snnet_mm.datasets.toy_instances import MIN_VISIBLE, run_lengths


def decode(run_lengths):
    """A mask from COCO's uncompressed run lengths, one run after the other."""
    flat = []
    for n, length in enumerate(run_lengths['counts']):
        flat += [n % 2] * length
    return np.array(flat, bool).reshape(run_lengths['size'], order='F')


@pytest.mark.parametrize(
    'rows, counts',
    [
        (['...', '...'], [6]),
        (['###', '###'], [0, 6]),
        (['.#.', '.##'], [2, 2, 1, 1]),
        (['#..', '#.#'], [0, 2, 3, 1]),
    ],
)
def test_run_lengths_go_down_the_columns(rows, counts):
    mask = np.array([[c == '#' for c in row] for row in rows])
    found = run_lengths(mask)
    assert found == dict(size=[2, 3], counts=counts)
    assert np.array_equal(decode(found), mask)


def test_instances_are_what_is_seen_of_the_objects():
    data, scenes = ToyInstances(num_scenes=30), ToyScenes(num_scenes=30)
    seen = hidden = slivers = 0
    for i in range(30):
        info, scene = data.get_data_info(i), scenes.get_scene(i)
        assert np.array_equal(info['img'], scene.image)
        assert (info['img_id'], info['ori_shape']) == (i, (64, 64))
        visible = [o for o in scene.instances if o.visible.any()]
        hidden += len(scene.instances) - len(visible)
        for found, wanted in zip(info['instances'], visible, strict=True):
            assert np.array_equal(decode(found['mask']), wanted.visible)
            x1, y1, x2, y2 = map(int, found['bbox'])
            inside = wanted.visible[y1:y2, x1:x2]
            assert inside.sum() == wanted.visible.sum()
            # The box is tight.
            assert inside[[0, -1]].any(axis=1).all()
            assert inside[:, [0, -1]].any(axis=0).all()
            assert (
                data.metainfo['classes'][found['bbox_label']]
                == (scenes.metainfo['classes'][wanted.label])
            )
            assert found['ignore_flag'] == (wanted.visible.sum() < MIN_VISIBLE)
            slivers += found['ignore_flag']
            seen += 1
    assert seen > 100
    assert hidden
    assert slivers


def test_scenes_without_objects():
    data = ToyInstances(num_scenes=3, num_objects=(0, 0))
    assert [data.get_data_info(i)['instances'] for i in range(3)] == [[], [], []]


def test_what_is_handed_out_is_the_callers():
    data = ToyInstances(num_scenes=1)
    first = data.get_data_info(0)
    first['instances'][0]['bbox'][0] = -1
    first['img'][:] = 0
    again = data.get_data_info(0)
    assert again['instances'][0]['bbox'][0] >= 0
    assert again['img'].any()


def test_objects_are_instances_of_one_class():
    objects, instances = ToyObjects(num_scenes=3), ToyInstances(num_scenes=3)
    assert objects.metainfo['classes'] == ('object',)
    for i in range(3):
        wanted = instances.get_data_info(i)['instances']
        assert len({o['bbox_label'] for o in wanted}) > 1
        assert objects.get_data_info(i)['instances'] == [
            dict(o, bbox_label=0) for o in wanted
        ]


def test_four_classes_have_names_and_colours():
    meta = ToyInstances(num_scenes=1).metainfo
    assert meta['classes'] == ('disk', 'box', 'triangle', 'bar')
    assert meta['palette'][0] == tuple(ToyScenes.METAINFO['palette'][2])
    with pytest.raises(ValueError, match='must name 4 classes'):
        ToyInstances(num_scenes=1, metainfo=dict(classes=('a', 'b')))
