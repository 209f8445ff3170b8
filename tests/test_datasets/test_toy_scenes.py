"""ToyScenes: what is painted, what the pipeline gets, what a user can get wrong."""

import pickle

import numpy as np
import pytest
from mmengine.registry import DATASETS, DefaultScope
from torch.utils.data import DataLoader

from snnet_mm.datasets import ToyScenes
from snnet_mm.datasets.scene_painter import (
    BAR,
    BOX,
    CAMERA_HEIGHT,
    DISK,
    GROUND,
    HILL_DEPTH,
    SKY,
    SKY_DEPTH,
    TRIANGLE,
)


def arrays(dataset: ToyScenes, idx: int) -> tuple[np.ndarray, np.ndarray]:
    info = dataset.get_data_info(idx)
    return info['img'], info['gt_seg_map']


def assert_same(first: dict, second: dict) -> None:
    np.testing.assert_array_equal(first['img'], second['img'])
    np.testing.assert_array_equal(first['gt_seg_map'], second['gt_seg_map'])


@pytest.fixture(scope='module')
def scenes() -> list:
    dataset = ToyScenes(num_scenes=100)
    return [dataset.get_scene(idx) for idx in range(100)]


# --- the stream of scenes


def test_scene_depends_on_its_index_alone():
    forward = ToyScenes(num_scenes=6, cache=False)
    backward = ToyScenes(num_scenes=20, cache=False)
    expected = [forward.get_data_info(idx) for idx in range(6)]
    np.random.seed(7)  # the global state has no say
    for idx in reversed(range(6)):
        assert_same(backward.get_data_info(idx), expected[idx])
        assert_same(forward.get_data_info(idx), expected[idx])


@pytest.mark.parametrize('cache', [True, False])
def test_workers_serve_what_the_process_itself_serves(cache):
    dataset = ToyScenes(num_scenes=12, cache=cache)
    # A list, as the default collate function would make tensors of the metadata.
    alone, shared = (
        list(DataLoader(dataset, 4, num_workers=workers, collate_fn=list))
        for workers in (0, 2)
    )
    assert len(alone) == len(shared) == 3
    for batch, other in zip(alone, shared, strict=True):
        for first, second in zip(batch, other, strict=True):
            assert first['img_path'] == second['img_path']
            assert_same(first, second)


def test_streams_are_distinct():
    datasets = [
        ToyScenes(num_scenes=8, split=split, seed=seed)
        for split in ('train', 'val', 'test')
        # A list of seed words would take (2**32, 0, 0) for (0, 1, 0).
        for seed in (0, 1, 2**32)
    ]
    images = {arrays(d, idx)[0].tobytes() for d in datasets for idx in range(8)}
    assert len(images) == len(datasets) * 8


def test_golden_scene():
    """Pins the stream: a change here is a change of everybody's data."""
    _, semantic = arrays(ToyScenes(num_scenes=1), 0)
    assert np.bincount(semantic.ravel(), minlength=6).tolist() == [
        1299,
        1701,
        801,
        234,
        0,
        61,
    ]


def test_cache_hands_out_copies():
    dataset = ToyScenes(num_scenes=3)
    expected = ToyScenes(num_scenes=3, cache=False).get_data_info(1)
    for _ in range(3):  # painted, then cached twice
        info = dataset.get_data_info(1)
        assert_same(info, expected)
        info['img'][:] = 0
        info['gt_seg_map'][:] = 0
    assert set(dataset._cache) == {1}
    assert ToyScenes(num_scenes=3, cache=False)._cache is None


def test_pickled_and_reduced_data_sets_serve_the_same_scenes():
    dataset = ToyScenes(num_scenes=10)
    copy = pickle.loads(pickle.dumps(dataset))
    assert_same(copy.get_data_info(4), dataset.get_data_info(4))

    subset = dataset.get_subset([7, 2])
    listed = ToyScenes(num_scenes=10, indices=[7, 2], serialize_data=False)
    for reduced in (subset, listed):
        assert len(reduced) == 2
        info = reduced.get_data_info(1)
        assert_same(info, dataset.get_data_info(2))
        assert (info['sample_idx'], info['img_path']) == (
            1,
            'toy_scenes/train/000002.png',
        )
        np.testing.assert_array_equal(
            reduced.get_scene(0).depth, dataset.get_scene(7).depth
        )


# --- what a scene holds


def test_every_class_is_frequent_enough(scenes):
    counts = sum(np.bincount(scene.semantic.ravel(), minlength=6) for scene in scenes)
    share = counts / counts.sum()
    assert len(share) == 6
    assert (share[[SKY, GROUND]] > 0.2).all()
    assert (share[[SKY, GROUND]] < 0.5).all()
    objects = share[[DISK, BOX, TRIANGLE, BAR]]
    assert (objects > 0.04).all()
    assert (objects < 0.16).all()


def test_numbers_of_objects_fill_the_range(scenes):
    assert {len(scene.instances) for scene in scenes} == {3, 4, 5, 6, 7}
    empty = ToyScenes(num_scenes=1, num_objects=(0, 0)).get_scene(0)
    assert empty.instances == []
    assert set(np.unique(empty.semantic)) == {SKY, GROUND}


def test_semantic_map_is_the_composition_of_the_visible_masks(scenes):
    hidden = 0
    for scene in scenes:
        composed = np.full(scene.semantic.shape, 255, np.uint8)
        for instance in scene.instances:  # far to near
            composed[instance.mask] = instance.label
        painted = composed != 255
        np.testing.assert_array_equal(scene.semantic[painted], composed[painted])
        assert (scene.semantic[~painted] <= GROUND).all()

        visible = np.zeros(scene.semantic.shape, int)
        for instance in scene.instances:
            assert not (instance.visible & ~instance.mask).any()
            assert (scene.semantic[instance.visible] == instance.label).all()
            visible += instance.visible
            hidden += int((instance.mask & ~instance.visible).sum())
        np.testing.assert_array_equal(visible, painted.astype(int))
    assert hidden > 100 * 50  # objects do hide one another


def test_nearest_object_wins(scenes):
    for scene in scenes:
        depths = [instance.depth for instance in scene.instances]
        assert depths == sorted(depths, reverse=True)
        nearest = np.full(scene.depth.shape, np.inf, np.float32)
        for instance in scene.instances:
            nearest[instance.mask] = np.minimum(
                nearest[instance.mask], np.float32(instance.depth)
            )
            assert (scene.depth[instance.visible] == np.float32(instance.depth)).all()
        covered = np.isfinite(nearest)
        np.testing.assert_array_equal(scene.depth[covered], nearest[covered])


def test_surfaces_have_the_depth_of_a_camera_over_flat_ground():
    dataset = ToyScenes(num_scenes=20, num_objects=(0, 0))
    for idx in range(20):
        scene = dataset.get_scene(idx)
        assert (scene.depth[scene.semantic == SKY] == np.float32(SKY_DEPTH)).all()
        assert scene.depth[scene.semantic == GROUND].max() == np.float32(HILL_DEPTH)
        column = scene.depth[:, 0]
        plain = column[column < HILL_DEPTH]
        assert len(plain) > 20
        # Inverse depth grows by 1 / (focal length * camera height) per row.
        np.testing.assert_allclose(
            np.diff(1 / plain), 1 / (64 * CAMERA_HEIGHT), rtol=1e-3
        )


def test_shapes_fill_their_boxes_as_their_outlines_say():
    """A large lone object's share of its box tells which shape was painted."""
    dataset = ToyScenes(num_scenes=120, size=(96, 128), num_objects=(1, 1), cache=False)
    shares = {DISK: [], BOX: [], TRIANGLE: [], BAR: []}
    for idx in range(120):
        instance = dataset.get_scene(idx).instances[0]
        x1, y1, x2, y2 = instance.bbox
        np.testing.assert_array_equal(instance.visible, instance.mask)
        if x1 > 0 and x2 < 128 and y1 > 0 and y2 < 96 and y2 - y1 > 10:
            area = (x2 - x1) * (y2 - y1)
            shares[instance.label].append(instance.mask.sum() / area)
    assert min(len(values) for values in shares.values()) >= 5
    np.testing.assert_allclose(shares[DISK], np.pi / 4, atol=0.06)
    # A triangle whose top stays over its foot fills half of its box, others less.
    assert min(shares[TRIANGLE]) > 0.35
    assert max(shares[TRIANGLE]) < 0.6
    assert min(shares[BOX]) > 0.7
    assert max(shares[BOX]) > 0.95


def test_small_and_oblong_scenes():
    for size in ((16, 16), (16, 80), (80, 16)):
        dataset = ToyScenes(num_scenes=20, size=size, num_objects=(9, 9))
        for idx in range(20):
            scene = dataset.get_scene(idx)
            assert scene.image.shape == (*size, 3)
            assert scene.depth.shape == scene.semantic.shape == size
            assert all(instance.mask.any() for instance in scene.instances)
    dtypes = scene.image.dtype, scene.semantic.dtype, scene.depth.dtype
    assert dtypes == (np.uint8, np.uint8, np.float32)


# --- what the pipeline gets


def test_data_info():
    info = ToyScenes(num_scenes=20, size=[32, 48], split='val').get_data_info(12)
    scene = ToyScenes(num_scenes=20, size=(32, 48), split='val').get_scene(12)
    assert_same(info, {'img': scene.image, 'gt_seg_map': scene.semantic})
    del info['img'], info['gt_seg_map']
    assert info == {
        'scene_index': 12,
        'sample_idx': 12,
        'img_path': 'toy_scenes/val/000012.png',
        'seg_fields': ['gt_seg_map'],
        'img_shape': (32, 48),
        'ori_shape': (32, 48),
        'height': 32,
        'width': 48,
        'reduce_zero_label': False,
    }


@pytest.mark.parametrize('cache', [True, False])
def test_depth_in_place_of_labels(cache):
    dataset = ToyScenes(num_scenes=3, depth=True, cache=cache)
    for _ in range(2):
        info = dataset.get_data_info(1)
        assert info['seg_fields'] == ['gt_depth_map']
        assert 'gt_seg_map' not in info
        scene = dataset.get_scene(1)
        np.testing.assert_array_equal(info['gt_depth_map'], scene.depth)
        np.testing.assert_array_equal(info['img'], scene.image)
        assert info['gt_depth_map'].dtype == np.float32
        info['gt_depth_map'][:] = 0  # the caller's to change


def test_negative_index_and_end():
    dataset = ToyScenes(num_scenes=5)
    info = dataset.get_data_info(-1)
    assert_same(info, dataset.get_data_info(4))
    assert (info['sample_idx'], info['scene_index']) == (4, 4)
    assert len(dataset) == 5
    with pytest.raises(IndexError):
        dataset[5]


def test_mmseg_pipeline_packs_the_arrays():
    pytest.importorskip('mmseg')
    from mmseg.registry import DATASETS as MMSEG_DATASETS

    with DefaultScope.overwrite_default_scope('mmseg'):
        plain, packed, flipped = (
            MMSEG_DATASETS.build(
                {'type': 'ToyScenes', 'num_scenes': 4, 'pipeline': pipeline}
            )
            for pipeline in (
                [],
                [{'type': 'PackSegInputs'}],
                [{'type': 'RandomFlip', 'prob': 1.0}, {'type': 'PackSegInputs'}],
            )
        )
    for idx in range(4):
        image, semantic = plain[idx]['img'], plain[idx]['gt_seg_map']
        inputs, sample = packed[idx]['inputs'], packed[idx]['data_samples']
        np.testing.assert_array_equal(inputs.permute(1, 2, 0), image)
        np.testing.assert_array_equal(sample.gt_sem_seg.data[0], semantic)
        assert sample.img_path == f'toy_scenes/train/{idx:06d}.png'
        assert sample.ori_shape == sample.img_shape == (64, 64)
        assert sample.reduce_zero_label is False

        inputs, sample = flipped[idx]['inputs'], flipped[idx]['data_samples']
        assert sample.flip is True
        np.testing.assert_array_equal(inputs.permute(1, 2, 0), image[:, ::-1])
        np.testing.assert_array_equal(sample.gt_sem_seg.data[0], semantic[:, ::-1])


def test_mmseg_metric_reads_the_metainfo(tmp_path):
    pytest.importorskip('mmseg')
    import torch
    from mmseg.evaluation import IoUMetric

    dataset = ToyScenes(num_scenes=3, split='val')
    metric = IoUMetric(iou_metrics=['mIoU'], output_dir=str(tmp_path))
    metric.dataset_meta = dataset.metainfo
    for idx in range(3):
        info = dataset[idx]
        truth = torch.from_numpy(info['gt_seg_map'].astype(np.int64))[None]
        guess = torch.zeros_like(truth)  # all sky
        sample = {
            'pred_sem_seg': {'data': guess},
            'gt_sem_seg': {'data': truth},
            'img_path': info['img_path'],
        }
        metric.process({}, [sample])
    sky = np.mean([dataset[idx]['gt_seg_map'] == SKY for idx in range(3)])
    result = metric.evaluate(size=3)
    assert result['aAcc'] == pytest.approx(100 * sky, abs=0.01)
    assert result['mIoU'] == pytest.approx(100 * sky / 6, abs=0.01)
    assert (tmp_path / '000002.png').exists()


# --- what a user can get wrong


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        ({'split': 'valid'}, r"split='valid'.*\('train', 'val', 'test'\)"),
        ({'num_scenes': 0}, 'num_scenes=0: must be an integer of 1 or more'),
        ({'num_scenes': 2.5}, 'num_scenes=2.5'),
        ({'seed': -1}, 'seed=-1: must be an integer of 0 or more'),
        ({'size': (64, 8)}, r'size=\(64, 8\).*\(H, W\).*16 or more'),
        ({'size': 64}, 'size=64: must be a pair'),
        ({'size': (64, 64, 3)}, r'size=\(64, 64, 3\): must be a pair'),
        ({'num_objects': (5, 2)}, r'num_objects=\(5, 2\).*must not exceed'),
        ({'num_objects': (-1, 2)}, r'num_objects=\(-1, 2\).*0 or more'),
        ({'num_objects': (1.0, 2)}, r'num_objects=\(1.0, 2\)'),
        ({'num_objects': 4}, 'num_objects=4: must be a pair'),
        ({'metainfo': {'classes': ('a', 'b')}}, r"metainfo\['classes'\]=.*6 classes"),
    ],
)
def test_errors(kwargs, message):
    with pytest.raises(ValueError, match=message):
        DATASETS.build({'type': 'ToyScenes', **kwargs})


def test_classes_may_be_renamed():
    names = ('air', 'soil', 'ball', 'crate', 'tent', 'pole')
    dataset = ToyScenes(num_scenes=1, metainfo={'classes': names})
    assert dataset.metainfo['classes'] == names
    assert dataset.metainfo['palette'] == ToyScenes.METAINFO['palette']
    assert ToyScenes.METAINFO['classes'][0] == 'sky'
