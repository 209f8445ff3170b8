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


def test_coco(tmp_path):
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


def test_a_file_is_divided(tmp_path):
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
def test_roboflow_has_annotations_beside_images(tmp_path, name):
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
    [
        ('annotations_latest.json', 'train'),
        ('instances_val2017.json', 'val'),
        ('my-validation-set.json', 'val'),
        ('training.json', 'train'),
    ],
)
def test_splits_are_words_of_the_names(tmp_path, name, split):
    write_coco(tmp_path)
    other = 'train' if split == 'val' else 'val'
    (tmp_path / f'annotations/instances_{split}.json').rename(
        tmp_path / 'annotations' / name
    )
    found = read(tmp_path).splits
    assert found[split].dataset['ann_file'] == f'{tmp_path}/annotations/{name}'
    assert found[other].dataset['ann_file'].endswith(f'instances_{other}.json')


def test_several_files_of_a_split(tmp_path):
    write_coco(tmp_path)
    other = tmp_path / 'annotations/person_keypoints_train.json'
    shutil.copy(tmp_path / TRAIN, other)
    assert read(tmp_path).splits['train'].dataset['ann_file'] == f'{tmp_path}/{TRAIN}'
    (tmp_path / TRAIN).rename(tmp_path / 'annotations/old_train.json')
    with pytest.raises(
        ValueError, match=r'several annotation files for train, .*old_t'
    ):
        read(tmp_path)


@pytest.mark.parametrize(
    'other', ['overlay', 'work_dirs/vis', 'annotations/vis', 'a', 'thumbs']
)
def test_images_are_those_of_the_folder_of_images(tmp_path, other):
    write_coco(tmp_path, ['all'])
    (tmp_path / 'all').rename(tmp_path / 'images')
    for path in list((tmp_path / 'images').iterdir()):
        write(tmp_path / other / path.name, (40, 60))
    found = read(tmp_path).splits['train'].dataset
    assert found == dict(data_prefix=dict(img='images'))
    (tmp_path / 'images').rename(tmp_path / 'unknown')
    with pytest.raises(ValueError, match="images that are in .*'unknown'.*one folder"):
        read(tmp_path)
    shutil.rmtree(tmp_path / other)
    found = read(tmp_path).splits['train'].dataset
    assert found == dict(data_prefix=dict(img='unknown'))


@pytest.mark.parametrize(
    'form',
    [
        './{}',
        'images/train/{}',
        '/home/me/data/images/train/{}',
        'C:\\data\\images\\train\\{}',
        'images\\train\\{}',
        '../../upload/1/{}',
        'https://a.b/train/{}',
    ],
)
def test_paths_of_file_names(tmp_path, form):
    write_coco(tmp_path)
    (tmp_path / 'images').mkdir()
    (tmp_path / 'train').rename(tmp_path / 'images/train')
    images = load(tmp_path / TRAIN)['images']
    names = [dict(x, file_name=form.format(x['file_name'])) for x in images]
    edit(tmp_path / TRAIN, images=names)
    found = read(tmp_path).splits['train']
    folder = tmp_path / found.dataset['data_prefix']['img']
    content = found.annotations or load(tmp_path / TRAIN)
    paths = [(folder / x['file_name']).resolve() for x in content['images']]
    assert paths == [tmp_path / f'images/train/{i}.jpg' for i in range(5)]


def test_absolute_paths_that_exist(tmp_path):
    write_coco(tmp_path / 'data')
    write(tmp_path / 'elsewhere/0.jpg', (40, 60))
    path = tmp_path / 'data' / TRAIN
    image = dict(id=0, height=40, width=60, file_name=f'{tmp_path}/elsewhere/0.jpg')
    edit(path, images=[image], annotations=[box(1, 0)])
    found = read(tmp_path / 'data').splits['train']
    assert found.dataset['data_prefix'] == dict(img='.')
    assert found.dataset['ann_file'] == str(path)


def test_names_in_another_case(tmp_path):
    write_coco(tmp_path)
    (tmp_path / 'train/0.jpg').rename(tmp_path / 'train/0.JPG')
    found = read(tmp_path)
    names = [x['file_name'] for x in found.splits['train'].annotations['images']]
    assert names == ['0.JPG', '1.jpg', '2.jpg', '3.jpg', '4.jpg']
    assert any(n.startswith('1 file names differ from those on') for n in found.notes)
    (tmp_path / 'train/0.JPG').unlink()
    with pytest.raises(ValueError, match=r"1 images that are not in .*train: \['0.jpg"):
        read(tmp_path)


def test_repeated_images(tmp_path):
    write_coco(tmp_path)
    images = load(tmp_path / TRAIN)['images']
    edit(tmp_path / TRAIN, images=[*images, dict(images[0], id=77)])
    content = load(tmp_path / TRAIN)
    edit(tmp_path / TRAIN, annotations=[*content['annotations'], box(9, 77)])
    found = read(tmp_path)
    assert found.splits['train'].number == 5
    objects = found.splits['train'].annotations['annotations']
    assert [x['image_id'] for x in objects] == [0, 1, 2, 3, 0]
    edit(tmp_path / TRAIN, images=[*images, dict(images[0], id=1)])
    with pytest.raises(ValueError, match=r'image id 1 for 1.jpg and 0.jpg: expected'):
        read(tmp_path)


@pytest.mark.parametrize('lacking', [{}, dict(height=0, width=0), dict(height=None)])
def test_missing_sizes(tmp_path, lacking):
    write_coco(tmp_path)
    images = [dict(id=i, file_name=f'{i}.jpg', **lacking) for i in range(5)]
    edit(tmp_path / TRAIN, images=images)
    found = read(tmp_path)
    sizes = [
        (x['height'], x['width']) for x in found.splits['train'].annotations['images']
    ]
    assert sizes == [(40, 60)] * 5
    assert found.notes[0].startswith(
        '5 images have no size in their file: added: 0.jpg'
    )


@pytest.mark.parametrize(
    'changes',
    [
        dict(annotations=[]),
        dict(annotations=[box(1, 0, bbox=[70, 4, 30, 20])]),
        dict(annotations=[box(1, 0, ignore=True)]),
        dict(annotations=[box(1, 0, iscrowd=1)]),
        dict(annotations=[box(1, 0, bbox=[float('nan'), 4, 30, 20])]),
        dict(annotations=[box(1, 0, bbox=[6, 4, 0.5, 20])]),
    ],
)
@pytest.mark.parametrize('file', [TRAIN, VAL])
def test_files_without_an_object_that_is_kept(tmp_path, changes, file):
    write_coco(tmp_path)
    edit(tmp_path / file, **changes)
    with pytest.raises(ValueError, match=f'{file} has no object that training keeps'):
        read(tmp_path)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(annotations=[box(1, 9)]), 'expected the key image_id, an id of an image'),
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
    ],
)
def test_wrong_coco_files(tmp_path, changes, message):
    write_coco(tmp_path)
    edit(tmp_path / VAL, **changes)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_a_damaged_file(tmp_path):
    write_coco(tmp_path)
    (tmp_path / VAL).write_text('{"images": [')
    with pytest.raises(ValueError, match='instances_val.json is no JSON: '):
        read(tmp_path)


@pytest.mark.parametrize('out', ['mine.py', 'annotations/mine.py'])
def test_written_annotations_are_no_split(tmp_path, out):
    write_coco(tmp_path, ['all'])
    found = read(tmp_path)
    for split, part in found.splits.items():
        path = annotation_file(tmp_path / out, split, '.json')
        path.write_text(json.dumps(part.annotations))
    (tmp_path / out).write_text('')
    assert read(tmp_path, out=tmp_path / out) == found
    (tmp_path / out).unlink()
    # Without a config these may be the user's own.
    for name in (out, 'other.py'):
        with pytest.raises(ValueError, match='mine_val.json have 1 images in common'):
            read(tmp_path, out=tmp_path / name)


def test_images_in_both_splits(tmp_path):
    write_coco(tmp_path)
    shutil.copy(tmp_path / TRAIN, tmp_path / VAL)
    shutil.rmtree(tmp_path / 'val')
    (tmp_path / 'train').rename(tmp_path / 'images')
    with pytest.raises(ValueError, match='instances_val.json have 5 images in common'):
        read(tmp_path)


def test_names_of_coco_are_those_of_the_labels_in_training(tmp_path):
    CocoDataset = pytest.importorskip('mmdet.datasets').CocoDataset
    write_coco(tmp_path)
    classes = read(tmp_path).classes
    file = str(tmp_path / TRAIN)
    settings = dict(data_prefix=dict(img='train'), pipeline=[])
    data = CocoDataset(ann_file=file, metainfo=dict(classes=classes), **settings)
    assert classes[data.get_data_info(0)['instances'][0]['bbox_label']] == 'car'
