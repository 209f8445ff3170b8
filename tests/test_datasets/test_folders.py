import json
import shutil

import numpy as np
import pytest
from labelled_folders import (
    box,
    halves,
    write,
    write_classes,
    write_coco,
    write_depth,
    write_masks,
    write_yolo,
)

from snnet_mm.datasets.folders import annotation_file, read_folder


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ('train', 'val'),
    [
        ('images/train masks/train', 'images/val masks/val'),
        ('img_dir/training ann_dir/training', 'img_dir/test ann_dir/test'),
        ('train/images train/labels', 'valid/images valid/labels'),
    ],
)
def test_masks(tmp_path, train, val):
    write_masks(tmp_path, train, val)
    found = read_folder(tmp_path, 'seg')
    assert (found.task, found.classes) == ('seg', ['class_0', 'class_1'])
    assert found.counts == [13 * 40 * 20, 13 * 40 * 40]
    assert found.sizes == {(40, 60): 13}
    assert found.facts == dict(image_suffix='.jpg', label_suffix='.png')
    assert found.notes == []
    for split, folders, number in (('train', train, 10), ('val', val, 3)):
        images, masks = folders.split()
        prefix = dict(img_path=images, seg_map_path=masks)
        assert found.splits[split].dataset == dict(data_prefix=prefix)
        assert found.splits[split].annotations == [str(i) for i in range(number)]


def test_a_folder_without_splits_is_divided_always_alike(tmp_path):
    write_masks(tmp_path, 'images masks', '')
    found = read_folder(tmp_path, 'seg', ['a', 'b', 'c'])
    assert found.notes == ['1 classes without a pixel: c']
    splits = found.splits
    names = {split: part.annotations for split, part in splits.items()}
    assert {split: len(part) for split, part in names.items()} == dict(train=8, val=2)
    assert sorted(names['train'] + names['val']) == [str(i) for i in range(10)]
    again = read_folder(tmp_path).splits
    assert {split: part.annotations for split, part in again.items()} == names


def test_names_of_masks_with_a_tail_and_images_without_a_mask(tmp_path):
    write_masks(tmp_path)
    masks = tmp_path / 'masks'
    for path in list(masks.rglob('*.png')):
        path.rename(path.with_name(f'{path.stem}_mask.png'))
    (masks / 'train/3_mask.png').unlink()
    found = read_folder(tmp_path)
    assert found.facts['label_suffix'] == '_mask.png'
    assert found.splits['train'].annotations == list('012456789')
    assert [n.replace(str(tmp_path), '') for n in found.notes] == [
        '1 images in /images/train without a label, left out: 3'
    ]


def test_masks_without_a_class(tmp_path):
    write_masks(tmp_path)
    write(tmp_path / 'masks/val/0.png', halves(low=255, high=255))
    found = read_folder(tmp_path)
    assert found.counts == [12 * 40 * 20, 12 * 40 * 40]
    assert read_folder(tmp_path, classes='ab').counts == found.counts


@pytest.mark.parametrize(
    ('mask', 'classes', 'message'),
    [
        (halves(high=4), 'ab', r'5.png has the labels \[4\]: expected 0 to 1'),
        (halves(high=4), '', r'labels \[0, 1, 4\]: expected 0, 1, 2 .*--classes'),
        (halves(20, 60), '', r'5.png has \(20, 60\) pixels: expected \(40, 60\)'),
        ((40, 60), '', '5.png is a PNG of mode RGB: expected a PNG of one channel'),
        (None, '', '5.png cannot be read'),
    ],
)
def test_wrong_masks(tmp_path, mask, classes, message):
    write_masks(tmp_path)
    path = tmp_path / 'masks/train/5.png'
    path.write_bytes(b'') if mask is None else write(path, mask)
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path, classes=classes)


@pytest.mark.parametrize('low', [0, 255])
@pytest.mark.parametrize('classes', ['', 'ab'])
def test_binary_masks_of_0_and_255(tmp_path, low, classes):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=low, high=255))
    with pytest.raises(ValueError, match='255.*set object pixels to 1, as in docs/'):
        read_folder(tmp_path, classes=classes)


def test_depth(tmp_path):
    write_depth(tmp_path)
    write(tmp_path / 'depth/2.png', np.zeros((40, 60), np.uint16))
    found = read_folder(tmp_path)
    assert (found.task, found.classes, found.counts) == ('depth', [], [])
    assert found.facts['depths'] == (1000, 4200, 4200)
    assert found.splits['val'].number == 1
    write(tmp_path / 'depth/3.png', halves())
    with pytest.raises(
        ValueError, match='3.png has 8 bits: expected a depth map of 16'
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize('splits', [('train/', 'val/'), ('',)])
def test_a_folder_for_every_class(tmp_path, splits):
    write_classes(tmp_path, splits)
    found = read_folder(tmp_path)
    assert (found.task, found.classes) == ('cls', ['cat', 'dog'])
    assert found.counts == [5 * len(splits)] * 2
    train, val = found.splits['train'], found.splits['val']
    assert train.dataset == dict(data_prefix=splits[0].strip('/'))
    assert val.dataset == dict(data_prefix=splits[-1].strip('/'))
    if len(splits) == 2:
        assert train.annotations[4:6] == ['cat/cat4.jpg 0', 'dog/dog0.jpg 1']
    else:  # one of every class
        assert [line[-1] for line in val.annotations] == ['0', '1']
        assert train.number == 8
        assert not {*train.annotations} & {*val.annotations}


def test_coco(tmp_path):
    write_coco(tmp_path)
    found = read_folder(tmp_path)
    assert (found.task, found.classes) == (
        'det',
        ['car', 'person'],
    )  # in the file's order
    assert (found.counts, found.sizes) == ([8, 0], {(40, 60): 10})
    assert found.facts == dict(with_mask=False, share=600**0.5 / 60, most=1)
    data = dict(data_prefix=dict(img='val'))
    data['ann_file'] = f'{tmp_path}/annotations/instances_val.json'
    assert found.splits['val'].dataset == data
    assert found.splits['val'].annotations is None
    assert found.notes[0] == '1 train images without an object: 4.jpg'


def test_coco_of_one_file_is_divided(tmp_path):
    write_coco(tmp_path, ['all'], segmentation=[[0, 0, 9, 0, 9, 9]])
    found = read_folder(tmp_path, 'det', ['car', 'person'])
    assert found.facts['with_mask']
    parts = [found.splits[split].annotations for split in ('train', 'val')]
    assert [len(part['images']) for part in parts] == [4, 1]
    for part in parts:
        ids = {image['id'] for image in part['images']}
        assert {x['image_id'] for x in part['annotations']} == ids - {4}
    assert found.splits['val'].dataset == dict(data_prefix=dict(img='all'))


@pytest.mark.parametrize('name', ['valid', 'test'])
def test_roboflow_has_annotations_beside_images(tmp_path, name):
    write_coco(tmp_path)
    for split, folder in (('train', 'train'), ('val', name)):
        (tmp_path / split).rename(tmp_path / folder)
        path = tmp_path / f'annotations/instances_{split}.json'
        path.rename(tmp_path / folder / '_annotations.coco.json')
    found = read_folder(tmp_path).splits
    assert found['val'].dataset['data_prefix'] == dict(img=name)
    assert found['train'].dataset['data_prefix'] == dict(img='train')


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            dict(annotations=[box(1, 9)]),
            'an annotation .*: expected .*an id of an image',
        ),
        (dict(annotations=[box(1, 1, 2)]), r"one of \{7: 'car', 3: 'person'\}"),
        (
            dict(annotations=[dict(bbox=[1, 2, 3, 4])]),
            r"the keys \['area', 'category_id'",
        ),
        (
            dict(categories=[dict(id=7, name='bus')]),
            r"\{7: 'bus'\}: expected \{7: 'car'",
        ),
        (
            dict(categories=[dict(id=3, name='person'), dict(id=7, name='car')]),
            r"\{3: 'person', 7: 'car'\}: expected .*, in this order",
        ),
        (
            dict(images=[dict(id=1, file_name='x.jpg', height=40, width=60)]),
            r"names 1 images that are not in .*\['x.jpg'\]",
        ),
        (
            dict(
                images=[
                    dict(id=i, file_name='1.jpg', height=60, width=40) for i in range(5)
                ]
            ),
            r'1.jpg has \(40, 60\) pixels: expected \(60, 40\)',
        ),
    ],
)
def test_wrong_coco_files(tmp_path, changes, message):
    write_coco(tmp_path)
    edit(tmp_path / 'annotations/instances_val.json', **changes)
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path)


@pytest.mark.parametrize('out', ['mine.py', 'annotations/mine.py'])
def test_written_annotations_are_no_split(tmp_path, out):
    write_coco(tmp_path, ['all'])
    found = read_folder(tmp_path)
    for split, part in found.splits.items():
        path = annotation_file(tmp_path / out, split, '.json')
        path.write_text(json.dumps(part.annotations))
    (tmp_path / out).write_text('')
    assert read_folder(tmp_path, out=tmp_path / out) == found
    (tmp_path / out).unlink()
    # Without a config these may be the user's own.
    with pytest.raises(ValueError, match='mine_val.json have 1 images in common, such'):
        read_folder(tmp_path, out=tmp_path / out)
    with pytest.raises(ValueError, match='mine_val.json have 1 images in common, such'):
        read_folder(tmp_path, out=tmp_path / 'other.py')


def test_yolo(tmp_path):
    write_yolo(tmp_path, '1 0.5 0.5 0.5 0.25')
    found = read_folder(tmp_path)
    assert (found.task, found.classes) == ('det', ['car', 'person'])
    assert (found.counts, found.facts['most']) == ([0, 8], 1)
    assert (
        found.splits['val'].annotations['images'][0]['file_name'] == 'images/val/0.jpg'
    )
    assert found.splits['val'].dataset == dict(data_prefix=dict(img='.'))


def test_unknown_folders(tmp_path):
    with pytest.raises(ValueError, match=r'has no images, .*argument: FOLDER'):
        read_folder(tmp_path)
    write(tmp_path / 'photos/1.jpg', (40, 60))
    with pytest.raises(ValueError, match='no known layout; known are:\n  images/'):
        read_folder(tmp_path)
    write(tmp_path / 'labels_of_photos/1.png', halves())
    with pytest.raises(ValueError, match='no known layout;'):
        read_folder(tmp_path)
    shutil.rmtree(tmp_path / 'photos')
    write_masks(tmp_path)
    with pytest.raises(ValueError, match='no known layout for detection'):
        read_folder(tmp_path, 'det')
    with pytest.raises(ValueError, match="task='boxes'; allowed: 'seg'"):
        read_folder(tmp_path, 'boxes')


def test_names_of_classes(tmp_path):
    write_classes(tmp_path)
    assert read_folder(tmp_path, classes=['dog', 'cat']).classes == ['cat', 'dog']
    with pytest.raises(ValueError, match=r"\['a', 'b'\]; allowed: .*'cat', 'dog'"):
        read_folder(tmp_path, classes=['a', 'b'])
    with pytest.raises(ValueError, match=r'allowed: different names .*--classes'):
        read_folder(tmp_path, classes=['a', 'a'])


def test_names_of_coco_are_those_of_the_labels_in_training(tmp_path):
    CocoDataset = pytest.importorskip('mmdet.datasets').CocoDataset
    write_coco(tmp_path)
    classes = read_folder(tmp_path).classes
    file = str(tmp_path / 'annotations/instances_train.json')
    settings = dict(data_prefix=dict(img='train'), pipeline=[])
    data = CocoDataset(ann_file=file, metainfo=dict(classes=classes), **settings)
    assert classes[data.get_data_info(0)['instances'][0]['bbox_label']] == 'car'
