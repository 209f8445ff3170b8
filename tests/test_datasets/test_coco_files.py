import json
import shutil

import pytest
from labelled_folders import box, write, write_coco

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.labelled_folder import annotation_file

TRAIN, VAL = (f'annotations/instances_{split}.json' for split in ('train', 'val'))


def load(path):
    return json.loads(path.read_text())


def edit(path, **changes):
    path.write_text(json.dumps(load(path) | changes))


def read(root, **kwargs):
    return read_folder(root, 'det', **kwargs)


def test_read_coco(tmp_path):
    write_coco(tmp_path)
    found = read(tmp_path)
    # In the file's order.
    assert (found.task, found.classes) == ('det', ['car', 'person'])
    assert (found.counts, found.sizes) == ([8, 0], {(40, 60): 10})
    assert found.facts == dict(with_mask=False, share=600**0.5 / 60, max_per_image=1)
    data = dict(data_prefix=dict(img='val'), ann_file=f'{tmp_path}/{VAL}')
    assert found.splits['val'].dataset == data
    assert found.splits['val'].annotations is None
    assert found.notes == [
        '1 train images without an object: 4.jpg',
        '1 val images without an object: 4.jpg',
        '1 classes without an object: person',
    ]


def test_read_coco_divides_a_single_file(tmp_path):
    write_coco(tmp_path, ['all'], segmentation=[[0, 0, 9, 0, 9, 9]])
    found = read(tmp_path, classes=['car', 'person'])
    assert found.facts['with_mask']
    parts = [found.splits[split].annotations for split in ('train', 'val')]
    assert [len(part['images']) for part in parts] == [4, 1]
    for part in parts:
        ids = {image['id'] for image in part['images']}
        assert {x['image_id'] for x in part['annotations']} == ids - {4}
    assert found.splits['val'].dataset == dict(data_prefix=dict(img='all'))


@pytest.mark.parametrize('name', ['valid', 'test'])
def test_read_coco_annotations_beside_images(tmp_path, name):
    """As in exports of Roboflow."""
    write_coco(tmp_path)
    for split, folder in (('train', 'train'), ('val', name)):
        (tmp_path / split).rename(tmp_path / folder)
        path = tmp_path / f'annotations/instances_{split}.json'
        path.rename(tmp_path / folder / '_annotations.coco.json')
    found = read(tmp_path).splits
    assert found['val'].dataset['data_prefix'] == dict(img=name)
    assert found['train'].dataset['data_prefix'] == dict(img='train')


@pytest.mark.parametrize(
    ('name', 'split'),
    [('annotations_latest.json', 'train'), ('my-validation-set.json', 'val')],
)
def test_read_coco_splits_are_words_of_the_names(tmp_path, name, split):
    write_coco(tmp_path)
    path = tmp_path / f'annotations/instances_{split}.json'
    path.rename(tmp_path / 'annotations' / name)
    found = read(tmp_path).splits
    assert found[split].dataset['ann_file'] == f'{tmp_path}/annotations/{name}'


def test_read_coco_several_files_of_a_split(tmp_path):
    write_coco(tmp_path)
    other = tmp_path / 'annotations/person_keypoints_train.json'
    shutil.copy(tmp_path / TRAIN, other)
    assert read(tmp_path).splits['train'].dataset['ann_file'] == f'{tmp_path}/{TRAIN}'
    (tmp_path / TRAIN).rename(tmp_path / 'annotations/old_train.json')
    with pytest.raises(ValueError, match='several annotation files for train, .*old_t'):
        read(tmp_path)


@pytest.mark.parametrize('other', ['annotations/vis', 'a'])
def test_read_coco_prefers_the_folder_of_images(tmp_path, other):
    write_coco(tmp_path, ['all'])
    (tmp_path / 'all').rename(tmp_path / 'images')
    for path in list((tmp_path / 'images').iterdir()):
        write(tmp_path / other / path.name, (40, 60))
    found = read(tmp_path).splits['train'].dataset
    assert found == dict(data_prefix=dict(img='images'))
    # A copy elsewhere does not stand in for a missing image.
    (tmp_path / 'images/0.jpg').rename(tmp_path / '0.jpg')
    with pytest.raises(ValueError, match=r"1 images .* not in .*images: \['0.jpg"):
        read(tmp_path)
    (tmp_path / '0.jpg').rename(tmp_path / 'images/0.jpg')
    shutil.copytree(tmp_path / 'images', tmp_path / 'photos')
    with pytest.raises(ValueError, match="images that are in .*'photos'.*one folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    ('form', 'changed'),
    [
        ('images/train/{}', False),
        ('/home/me/data/images/train/{}', True),
        ('C:\\data\\images\\train\\{}', True),
        ('../../upload/1/{}', True),
    ],
)
def test_read_coco_paths_of_file_names(tmp_path, form, changed):
    write_coco(tmp_path)
    (tmp_path / 'images').mkdir()
    (tmp_path / 'train').rename(tmp_path / 'images/train')
    images = load(tmp_path / TRAIN)['images']
    names = [dict(x, file_name=form.format(x['file_name'])) for x in images]
    edit(tmp_path / TRAIN, images=names)
    found = read(tmp_path).splits['train']
    folder = tmp_path / found.dataset['data_prefix']['img']
    assert bool(found.annotations) is changed
    content = found.annotations or load(tmp_path / TRAIN)
    paths = [(folder / x['file_name']).resolve() for x in content['images']]
    assert paths == [tmp_path / f'images/train/{i}.jpg' for i in range(5)]


def test_read_coco_absolute_paths_that_exist(tmp_path):
    write_coco(tmp_path / 'data')
    write(tmp_path / 'elsewhere/0.jpg', (40, 60))
    path = tmp_path / 'data' / TRAIN
    image = dict(id=0, height=40, width=60, file_name=f'{tmp_path}/elsewhere/0.jpg')
    edit(path, images=[image], annotations=[box(1, 0)])
    found = read(tmp_path / 'data').splits['train']
    assert found.dataset['data_prefix'] == dict(img='.')
    assert found.dataset['ann_file'] == str(path)


def test_read_coco_adds_missing_sizes(tmp_path):
    write_coco(tmp_path)
    images = [dict(id=i, file_name=f'{i}.jpg', height=None) for i in range(5)]
    edit(tmp_path / TRAIN, images=images)
    found = read(tmp_path)
    written = found.splits['train'].annotations['images']
    assert {(x['height'], x['width']) for x in written} == {(40, 60)}
    assert found.notes[0].startswith('5 images have no size in their file: added')


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(annotations=[]), f'{VAL} has no object in 5 images'),
        (dict(annotations=[box(1, 9)]), 'expected image_id, that of an image'),
        (dict(annotations=[box(1, 1, 2)]), r"category 2: .*\{7: 'car', 3: 'person'\}"),
        (dict(annotations=[dict(bbox=[1, 2, 3, 4])]), 'of the category None'),
        (dict(categories=[dict(id=7, name='bus')]), "category 'bus'.*7: 'car'"),
        (dict(categories=[dict(id=7)]), 'expected a name and an id'),
        (
            dict(images=[dict(id=1, file_name='x.jpg', height=40, width=60)]),
            r"names 1 images that are not in .*\['x.jpg'\]",
        ),
        (
            dict(images=[dict(id=1, file_name='1.jpg', height=60, width=40)]),
            r'1.jpg has \(40, 60\) pixels: expected \(60, 40\)',
        ),
        (dict(images=[dict(id=1)]), 'expected file_name and id'),
        (
            dict(images=[dict(id=1, file_name=f'{i}.jpg') for i in range(2)]),
            r'images with the id \[1\] more than once',
        ),
        (
            dict(images=[dict(id=i, file_name='1.jpg') for i in range(2)]),
            r"images with the file_name \['1.jpg'\] more than once",
        ),
    ],
)
def test_read_coco_wrong_files(tmp_path, changes, message):
    write_coco(tmp_path)
    edit(tmp_path / VAL, **changes)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_read_coco_damaged_file(tmp_path):
    write_coco(tmp_path)
    (tmp_path / VAL).write_text('{"images": [')
    with pytest.raises(ValueError, match='instances_val.json is no JSON: '):
        read(tmp_path)


def test_read_coco_written_annotations_are_no_split(tmp_path):
    write_coco(tmp_path, ['all'])
    found, out = read(tmp_path), tmp_path / 'annotations/mine.py'
    for split, part in found.splits.items():
        path = annotation_file(out, split, '.json')
        path.write_text(json.dumps(part.annotations))
    out.write_text('')
    assert read(tmp_path, out=out) == found
    out.unlink()
    # Without a config these may be the user's own.
    with pytest.raises(
        ValueError, match='mine_val.json names 1 images that are not in'
    ):
        read(tmp_path, out=out)


def test_read_coco_classes_are_labels_in_training(tmp_path):
    CocoDataset = pytest.importorskip('mmdet.datasets').CocoDataset
    write_coco(tmp_path)
    classes = read(tmp_path).classes
    file = str(tmp_path / TRAIN)
    settings = dict(data_prefix=dict(img='train'), pipeline=[])
    data = CocoDataset(ann_file=file, metainfo=dict(classes=classes), **settings)
    assert classes[data.get_data_info(0)['instances'][0]['bbox_label']] == 'car'
