"""Every fault that data can have is found in real files."""

import json

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DefaultScope, init_default_scope
from PIL import Image

from snnet_mm.datasets.check import check_split, samples_of

IMPORTS = dict(
    seg='mmseg.datasets',
    depth='mmseg.datasets',
    cls='mmpretrain.datasets',
    det='mmdet.datasets',
)
SCOPES = dict(seg='mmseg', depth='mmseg', cls='mmpretrain', det='mmdet')


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def gray(height=6, width=8):
    return np.full((height, width, 3), 100, 'uint8')


def checked(task, dataset, split='train', model=None, workers=1):
    """What is found in a data set; it is read as mm would read it."""
    __import__(IMPORTS[task])
    cfg = Config(
        {
            'model': model or dict(type='A'),
            f'{split}_dataloader': dict(dataset=dataset),
            'val_evaluator': dict(type='B', min_depth=0.5, max_depth=5),
        }
    )
    init_default_scope(SCOPES[task])
    try:
        samples, names, problems = samples_of(cfg, split)
    finally:
        DefaultScope._instance_dict.clear()
    return check_split(split, samples, names, problems, workers)


def kinds(split):
    return {kind: number for kind, (number, _) in split.problems.items()}


def files(split, kind):
    return [(file.rsplit('/')[-1], why) for file, why in split.problems[kind][1]]


# --- maps of labels


@pytest.fixture
def maps(tmp_path):
    """Three images, each with half of its pixels of class 0 and half of class 1."""
    for i in range(3):
        write(tmp_path / f'images/{i}.png', gray())
        labels = np.zeros((6, 8), 'uint8')
        labels[3:] = 1
        write(tmp_path / f'labels/{i}.png', labels)
    return tmp_path


def of_maps(folder, **kwargs):
    return dict(
        type='SeededDataset',
        of='BaseSegDataset',
        data_root=str(folder),
        data_prefix=dict(img_path='images', seg_map_path='labels'),
        img_suffix='.png',
        metainfo=dict(classes=('sky', 'road'), palette=[[0] * 3] * 2),
        pipeline=[dict(type='NoTransform')],
        **kwargs,
    )


@pytest.mark.parametrize('workers', [1, 2])
def test_maps_without_a_fault(maps, workers):
    found = checked('seg', of_maps(maps), workers=workers)
    assert found.problems == {}
    assert (found.num_samples, found.unit) == (3, 'pixels')
    assert found.counts == dict(sky=72, road=72)
    assert found.images == dict(sky=3, road=3)


def test_labels_are_those_that_mm_makes_of_them(maps):
    found = checked('seg', of_maps(maps, reduce_zero_label=True))
    # 0 becomes the ignored label, 1 the class 0.
    assert found.counts == dict(sky=72, road=0)
    assert kinds(found) == {'class that never occurs': 1}


def test_faults_of_maps(maps):
    labels = np.full((6, 8), 255, 'uint8')
    write(maps / 'labels/0.png', labels)
    labels[0, :2] = 7, 9
    labels[1] = 1
    write(maps / 'labels/1.png', labels)
    write(maps / 'labels/2.png', np.zeros((8, 6), 'uint8'))
    found = checked('seg', of_maps(maps))
    assert kinds(found) == {
        'empty annotation': 1,
        'labels outside the classes': 1,
        'sizes disagree': 1,
    }
    assert files(found, 'empty annotation')[0][0] == '0.png'
    ((name, why),) = files(found, 'labels outside the classes')
    assert name == '1.png'
    assert why.endswith('labels/1.png: [7, 9]')
    assert '(6, 8)' in files(found, 'sizes disagree')[0][1]
    assert found.counts == dict(sky=48, road=8)


def test_files_that_cannot_be_read(maps):
    for name in ('images/0.png', 'labels/1.png'):
        path = maps / name
        path.write_bytes(path.read_bytes()[:-25])
    (maps / 'labels/2.png').unlink()
    found = checked('seg', of_maps(maps))
    assert kinds(found) == {'unreadable image': 1, 'unreadable annotation': 2}
    assert [f for f, _ in files(found, 'unreadable annotation')] == ['1.png', '2.png']
    assert found.counts == dict(sky=24, road=24)


def test_a_colour_picture_is_no_map_of_labels(maps):
    write(maps / 'labels/1.png', gray())
    assert kinds(checked('seg', of_maps(maps))) == {'annotation with channels': 1}


def test_heads_of_other_classes(maps):
    model = dict(
        backbone=dict(num_classes=1000),
        decode_head=dict(num_classes=2),
        auxiliary_head=[dict(num_classes=2), dict(num_classes=150)],
    )
    found = checked('seg', of_maps(maps), model=model)
    assert found.problems['head of another number of classes'] == (
        1,
        [('model.auxiliary_head.1.num_classes', '150, the data 2')],
    )


# --- maps of depth


def of_depth(folder):
    prefix = dict(img_path='images', depth_map_path='depth')
    return dict(
        type='NYUDataset',
        data_root=str(folder),
        data_prefix=prefix,
        pipeline=[dict(type='LoadDepthMap', depth_rescale_factor=1e-2)],
    )


def test_faults_of_depth(tmp_path):
    for i in range(4):
        write(tmp_path / f'images/{i}.jpg', gray())
        depth = np.full((6, 8), 100 + 100 * i, 'uint16')  # 1 to 4 m
        depth[0] = 0
        write(tmp_path / f'depth/{i}.png', depth)
    found = checked('depth', of_depth(tmp_path))
    assert found.problems == {}
    occupied = {name: n for name, n in found.counts.items() if n}
    assert occupied == {'1-1.5 m': 40, '2-2.5 m': 40, '3-3.5 m': 40, '4-4.5 m': 40}

    write(tmp_path / 'depth/0.png', np.zeros((6, 8), 'uint16'))
    depth = np.full((6, 8), 100, 'uint16')
    depth[0] = 600
    depth[1] = 40
    write(tmp_path / 'depth/1.png', depth)
    write(tmp_path / 'depth/2.png', depth[:, :5])
    (tmp_path / 'depth/3.png').write_bytes(b'')
    found = checked('depth', of_depth(tmp_path))
    assert kinds(found) == {
        'empty annotation': 1,
        'depth outside the range': 2,
        'sizes disagree': 1,
        'unreadable annotation': 1,
    }
    why = files(found, 'depth outside the range')[0][1]
    assert '0.4 to 6 m, 33.3% of the pixels are outside' in why


def test_depth_that_is_no_number(tmp_path):
    write(tmp_path / 'images/0.jpg', gray())
    depth = np.full((6, 8), 150, 'float32')  # 1.5 m
    depth[0, :3] = np.nan, np.inf, 0
    (tmp_path / 'depth').mkdir()
    np.save(tmp_path / 'depth/0.npy', depth)
    found = checked('depth', dict(of_depth(tmp_path), depth_map_suffix='.npy'))
    assert kinds(found) == {'depth that is no number': 1}
    assert {name: n for name, n in found.counts.items() if n} == {'1.5-2 m': 45}


# --- boxes


def coco(folder, annotations, **changes):
    images = [
        dict(id=i, file_name=f'{i}.png', height=6, width=8)
        for i in {1, *(a['image_id'] for a in annotations if a['image_id'] < 9)}
    ]
    for image in images:
        write(folder / 'images' / image['file_name'], gray())
    categories = [dict(id=3, name='cat'), dict(id=5, name='dog')]
    data = dict(images=images, annotations=annotations, categories=categories)
    (folder / 'a.json').write_text(json.dumps(data | changes))
    return dict(
        type='CocoDataset',
        data_root=str(folder),
        ann_file='a.json',
        data_prefix=dict(img='images'),
        metainfo=dict(classes=('cat', 'dog'), palette=[(0, 0, 0)] * 2),
        pipeline=[dict(type='LoadAnnotations', with_bbox=True, with_mask=True)],
    )


def thing(n, image_id=1, category_id=3, bbox=(1, 1, 3, 2), mask=True):
    polygon = [[1, 1, 3, 1, 3, 2]] if mask else []
    return dict(
        id=n,
        image_id=image_id,
        category_id=category_id,
        bbox=list(bbox),
        segmentation=polygon,
        area=6,
        iscrowd=0,
    )


@pytest.mark.ops
def test_faults_of_boxes(tmp_path):
    good = [thing(1), thing(2, category_id=5), thing(3, 2, bbox=(0, 0, 8, 6.5))]
    found = checked('det', coco(tmp_path, good))
    assert found.problems == {}
    assert found.counts == dict(cat=2, dog=1)
    assert found.images == dict(cat=2, dog=1)

    faults = [
        thing(4, category_id=7),
        thing(5, bbox=(5, 1, 6, 2)),
        thing(6, bbox=(-3, 1, 4, 2)),
        thing(7, bbox=(1, 1, 0.5, 2)),
        thing(8, mask=False),
        thing(9, 99),
        dict(thing(10), bbox=None),
    ]
    found = checked('det', coco(tmp_path, good + faults))
    assert kinds(found) == {
        'unknown category': 1,
        'box outside the image': 2,
        'box smaller than a pixel': 1,
        'no mask': 1,
        'no box': 1,
        'objects of no image': 1,
    }
    assert files(found, 'unknown category') == [
        ('1.png', 'annotation 4: category_id 7')
    ]
    assert found.problems['objects of no image'][1][0][1] == 'image_id 99'


@pytest.mark.ops
def test_faults_of_images_with_boxes(tmp_path):
    dataset = coco(tmp_path, [thing(1, 2), thing(2, 3), thing(3, 4)])
    write(tmp_path / 'images/2.png', gray(9, 9))
    (tmp_path / 'images/3.png').unlink()
    dataset['metainfo']['classes'] = ('cat', 'cow')
    found = checked('det', dataset)
    assert kinds(found) == {
        'empty annotation': 1,
        'sizes disagree': 1,
        'unreadable image': 1,
        'class without a category': 1,
        'class that never occurs': 1,
    }
    assert files(found, 'empty annotation') == [('1.png', 'no object')]
    assert found.problems['class without a category'][1][0][1] == 'cow'


@pytest.mark.ops
def test_a_file_that_is_no_coco_file(tmp_path):
    dataset = coco(tmp_path, [thing(1)])
    (tmp_path / 'a.json').write_text('{"images": [')
    assert kinds(checked('det', dataset))['unreadable annotation file'] == 1
    (tmp_path / 'a.json').write_text('{"images": []}')
    why = checked('det', dataset).problems['unreadable annotation file'][1][0][1]
    assert why == "KeyError 'categories'"


# --- folders of classes


def test_faults_of_folders(tmp_path):
    for name in ('cat', 'dog'):
        for i in range(3):
            write(tmp_path / name / f'{i}.png', gray())
    dataset = dict(type='CustomDataset', data_root=str(tmp_path), data_prefix='')
    found = checked('cls', dataset)
    assert found.problems == {}
    assert found.counts == found.images == dict(cat=3, dog=3)

    (tmp_path / 'cat/0.png').write_bytes(b'nothing')
    (tmp_path / 'cow').mkdir()
    head = dict(head=dict(num_classes=2))
    found = checked('cls', dataset, model=head)
    assert kinds(found) == {
        'unreadable image': 1,
        'class without images': 1,
        'head of another number of classes': 1,
    }
    assert found.problems['class without images'][1] == [('cow', '')]


def test_labels_outside_the_classes(tmp_path):
    for i in range(3):
        write(tmp_path / f'{i}.png', gray())
    (tmp_path / 'list.txt').write_text('0.png 0\n1.png 1\n2.png 4\n')
    dataset = dict(
        type='CustomDataset',
        data_root=str(tmp_path),
        data_prefix='',
        ann_file='list.txt',
        metainfo=dict(classes=('cat', 'dog')),
    )
    found = checked('cls', dataset)
    assert kinds(found) == {'labels outside the classes': 1}
    assert files(found, 'labels outside the classes') == [('2.png', '[4]')]


def test_what_has_no_files_is_refused():
    with pytest.raises(ValueError, match=r'ToyScenes .*train_dataloader.dataset'):
        checked('seg', dict(type='ToyScenes', num_scenes=2))
    with pytest.raises(ValueError, match=r'no val_dataloader \(option: --split\)'):
        samples_of(Config(dict(model=dict())), 'val')
