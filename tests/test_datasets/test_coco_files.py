import json
import shutil
from collections import Counter

import pytest
from labelled_folders import box, write_coco
from mmdet.datasets import CocoDataset

from snnet_mm.datasets.folders import read_folder

TRAIN, VAL = (f'annotations/instances_{split}.json' for split in ('train', 'val'))
TRIANGLE = [6, 4, 36, 4, 36, 24]
RUNS = dict(size=[40, 60], counts=[240, 20, 2140])  # half of a column
CAR, PERSON = dict(id=7, name='car'), dict(id=3, name='person')


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def read(root, **kwargs):
    return read_folder(root, 'det', **kwargs)


def read_with(root, *objects, categories=(CAR, PERSON), file=TRAIN, **kwargs):
    """Read a file with more objects; return what is found and these objects."""
    write_coco(root, **kwargs)
    annotations = json.loads((root / file).read_text())['annotations']
    edit(root / file, annotations=annotations + [*objects], categories=categories)
    found = read(root)
    part = found.splits['train' if file == TRAIN else 'val'].annotations
    return found, part['annotations'][4:]


def test_coco_files_reads_splits(tmp_path):
    write_coco(tmp_path)
    found = read(tmp_path, classes=['person', 'car'])
    # In the file's order.
    assert (found.task, found.classes) == ('det', ['car', 'person'])
    assert (found.counts, found.sizes) == (dict(car=8), {(40, 60): 10})
    assert found.facts == dict(with_mask=False, share=600**0.5 / 60, max_per_image=1)
    number, prefix, content = found.splits['val']
    assert (number, prefix) == (5, dict(img='val'))
    assert content['categories'] == [dict(id=1, name='car'), dict(id=2, name='person')]
    image = dict(id=3, file_name='3.jpg', height=40, width=60)
    assert content['images'][3] == image
    x = content['annotations'][3]
    assert x == x | box(4, 3, category=1, segmentation=[])
    assert found.notes == [
        '1 train images without an object: 4.jpg',
        '1 val images without an object: 4.jpg',
        '1 classes without a label: person',
    ]


def test_coco_files_divides_file_without_split(tmp_path):
    write_coco(tmp_path, ['all'], segmentation=[TRIANGLE])
    found = read(tmp_path)
    assert found.facts['with_mask']
    assert [part.number for part in found.splits.values()] == [4, 1]
    names = [
        image['file_name']
        for part in found.splits.values()
        for image in part.annotations['images']
    ]
    assert sorted(names) == [f'{i}.jpg' for i in range(5)]
    assert found.splits['val'].prefix == dict(img='all')
    # What was written before, beside a config, is no split.
    for split, part in found.splits.items():
        (tmp_path / f'mine_{split}.json').write_text(json.dumps(part.annotations))
    assert read(tmp_path).splits == found.splits


@pytest.mark.parametrize(
    ('split', 'name'),
    [
        ('val', 'valid/_annotations.coco.json'),  # Roboflow's
        ('val', 'test/_annotations.coco.json'),
        ('val', 'annotations/my-validation-set.json'),
        ('train', 'annotations/annotations_latest.json'),  # no test split
    ],
)
def test_coco_files_names_tell_split(tmp_path, split, name):
    write_coco(tmp_path)
    path = tmp_path / name
    folder = path.parent.name if path.parent.name != 'annotations' else split
    (tmp_path / split).rename(tmp_path / folder)
    (tmp_path / f'annotations/instances_{split}.json').rename(path)
    assert read(tmp_path).splits[split].prefix == dict(img=folder)


def test_coco_files_several_of_a_split(tmp_path):
    write_coco(tmp_path)
    shutil.copy(tmp_path / TRAIN, tmp_path / 'annotations/person_keypoints_train.json')
    assert read(tmp_path).splits['train'].number == 5
    (tmp_path / TRAIN).rename(tmp_path / 'annotations/old_train.json')
    with pytest.raises(ValueError, match='for train, .*old_train.json'):
        read(tmp_path)


@pytest.mark.parametrize('other', ['annotations/vis', 'a'])
def test_coco_files_images_not_of_other_folders(tmp_path, other):
    write_coco(tmp_path, ['all'])
    (tmp_path / 'all').rename(tmp_path / 'images')
    shutil.copytree(tmp_path / 'images', tmp_path / other)
    assert read(tmp_path).splits['train'].prefix == dict(img='images')
    # A copy elsewhere does not stand in for a missing image.
    (tmp_path / 'images/0.jpg').rename(tmp_path / '0.jpg')
    with pytest.raises(ValueError, match='names 1 images .*images/0.jpg'):
        read(tmp_path)
    (tmp_path / '0.jpg').rename(tmp_path / 'images/0.jpg')
    shutil.copytree(tmp_path / 'images', tmp_path / 'photos')
    with pytest.raises(ValueError, match='in 2 folders'):
        read(tmp_path)


@pytest.mark.parametrize(
    'form',
    [
        'images/train/{}',
        '/home/me/data/images/train/{}',
        'C:\\data\\images\\train\\{}',
        '../../upload/1/{}',
        '{root}/images/train/{}',
    ],
)
def test_coco_files_image_names_with_folders(tmp_path, form):
    write_coco(tmp_path)
    (tmp_path / 'images').mkdir()
    (tmp_path / 'train').rename(tmp_path / 'images/train')
    names = [form.format(f'{i}.jpg', root=tmp_path) for i in range(5)]
    images = [dict(id=i, file_name=name) for i, name in enumerate(names)]
    edit(tmp_path / TRAIN, images=images)
    found = read(tmp_path).splits['train']
    assert found.prefix == dict(img='images/train')
    written = found.annotations['images']
    assert [image['file_name'] for image in written] == [f'{i}.jpg' for i in range(5)]
    assert {(x['height'], x['width']) for x in written} == {(40, 60)}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(annotations=[]), 'val of .* has no object'),
        (dict(annotations=[box(1, 9)]), 'image_id and category_id'),
        (dict(annotations=[box(1, 1, 2)]), "'category_id': 2.* 3: 'person'"),
        (dict(categories=[dict(id=7, name='bus')]), r"\['car', 'person'\] for .*'bus'"),
        (dict(categories=[dict(id=7)]), "val.json .*KeyError 'name'"),
        (dict(images=[dict(id=1, file_name='x.jpg')]), r"names 1 images .*x.jpg'\]"),
        (
            dict(images=[dict(id=1, file_name='1.jpg', height=60, width=40)]),
            r'1.jpg .*\(40, 60\).*\(60, 40\)',
        ),
        (dict(images=[dict(id=1)]), "KeyError 'file_name'"),
        (dict(images=[dict(id=1, file_name=f'{i}.jpg') for i in (0, 1)]), 'twice'),
        (dict(images=[dict(id=i, file_name='1.jpg') for i in (0, 1)]), 'twice'),
        (dict(categories=[CAR, CAR]), 'twice'),
        (dict(annotations=[box(4, 1, bbox=[30, 20, 58, 38])]), 'beyond .*x, y, width'),
        (dict(annotations=[box(4, 1, bbox=[1, 2, 3, 4, 5])]), 'annotation 4 of 1.jpg'),
        (dict(annotations=[box(4, 1, bbox=[5, 5, float('inf'), 5])]), r'\[5, 5, inf'),
        (dict(annotations=[box(4, 1, bbox=list('1234'))]), "the box .'1', '2', '3'"),
        (dict(annotations=[dict(id=4, image_id=1, category_id=7)]), 'the box None'),
        (
            dict(annotations=[box(4, 1, segmentation=RUNS | dict(size=[60, 40]))]),
            r'run lengths of size \(40, 60\)',
        ),
    ],
)
def test_coco_files_wrong_content_raises(tmp_path, changes, message):
    write_coco(tmp_path)
    kept = {k: [] for k in ('annotations',) if 'images' in changes}
    edit(tmp_path / VAL, **kept | changes)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_coco_files_damaged_file_raises(tmp_path):
    write_coco(tmp_path)
    (tmp_path / VAL).write_text('{"images": [')
    with pytest.raises(ValueError, match='val.json is not valid JSON'):
        read(tmp_path)


@pytest.mark.parametrize(
    ('change', 'expected'),
    [
        (dict(area=0), dict(area=600)),
        (dict(area=float('nan')), dict(area=600)),
        (dict(iscrowd=None), dict(iscrowd=0)),
        (dict(id=0), dict(id=5)),
        (dict(attributes=dict(rotation=30)), {}),
    ],
)
def test_coco_files_corrects_objects(tmp_path, change, expected):
    """Objects that would be misread are corrected."""
    given = {k: v for k, v in (box(5, 0) | change).items() if v is not None}
    # Of image 4: objects are written in the order of images.
    found, (x,) = read_with(tmp_path, given | dict(image_id=4))
    assert x == x | expected
    assert found.counts == dict(car=9)
    rotated = [n for n in found.notes if 'boxes have a rotation' in n]
    assert len(rotated) == ('attributes' in change)


@pytest.mark.parametrize(
    ('outline', 'expected'),
    [
        (TRIANGLE, [TRIANGLE]),
        ([TRIANGLE, [1, 1]], [TRIANGLE]),
        (RUNS, RUNS),
        ([], None),
        ([[6, 4, 36, 24]], None),
        ([[1] * 7], None),
        ([dict(x=1, y=2)], None),
        ([[[6, 4], [36, 4]]], None),
    ],
)
def test_coco_files_keeps_valid_outlines(tmp_path, outline, expected):
    x = box(5, 4, segmentation=outline)
    found, objects = read_with(tmp_path, x, segmentation=[TRIANGLE])
    assert found.facts['with_mask']
    assert [x['segmentation'] for x in objects] == [expected] * bool(expected)
    noted = any('1 objects without an outline are left out' in n for n in found.notes)
    assert noted is not bool(expected)


@pytest.mark.ops
def test_coco_files_keeps_objects_that_mmdet_keeps(tmp_path):
    boxes = [60, 0, 5, 5], [-9, 0, 9, 9], [0, 40, 9, 9], [6, 4, 0.9, 9], [-8, -8, 9, 9]
    changes = [dict(bbox=b) for b in boxes] + [dict(ignore=1), dict(iscrowd=1)]
    others = [box(i, 4, **change) for i, change in enumerate(changes, 10)]
    others.append(box(9, 4, 3, area=0))
    write_coco(tmp_path)
    content = json.loads((tmp_path / TRAIN).read_text())
    edit(tmp_path / TRAIN, annotations=content['annotations'] + others)
    found = read(tmp_path)
    assert found.counts == dict(car=4 + 4 + 1, person=1)
    (note,) = (n for n in found.notes if 'left out, as mmdet does' in n)
    assert note.startswith('5 objects')
    (tmp_path / 'a.json').write_text(json.dumps(found.splits['train'].annotations))
    settings = dict(data_prefix=dict(img='train'), pipeline=[])
    for file in (tmp_path / TRAIN, tmp_path / 'a.json'):
        meta = dict(classes=found.classes)
        data = CocoDataset(ann_file=str(file), metainfo=meta, **settings)
        labels = Counter(
            found.classes[x['bbox_label']]
            for i in range(len(data))
            for x in data.get_data_info(i)['instances']
            if not x['ignore_flag']
        )
        # Of the file itself, mmdet leaves out the object of no area.
        assert labels == Counter(['car'] * 5 + ['person'] * (file.stem == 'a'))


def test_coco_files_drops_outlines_of_few_objects(tmp_path):
    found, (x,) = read_with(tmp_path, box(5, 4, segmentation=[TRIANGLE]))
    assert not found.facts['with_mask']
    assert any('1 objects have an outline, not used' in n for n in found.notes)


@pytest.mark.parametrize(
    'group',
    [
        dict(id=0, name='things', supercategory='none'),  # Roboflow's
        dict(id=0, name='_background_', supercategory=None),
    ],
)
def test_coco_files_group_categories_are_no_classes(tmp_path, group):
    others = [dict(c, supercategory='things') for c in (CAR, PERSON)]
    found, _ = read_with(tmp_path, categories=[group, *others])
    assert found.classes == ['car', 'person']
    assert any(n.endswith(f'no classes: {group["name"]}') for n in found.notes)
    # With an object it is one.
    used, _ = read_with(tmp_path / 'a', box(5, 0, 0), categories=[group, *others])
    assert used.classes == [group['name'], 'car', 'person']


def test_coco_files_other_category_ids_of_validation(tmp_path):
    others = [dict(id=7, name='person'), dict(id=1, name='car'), dict(id=2, name='x')]
    found, (x,) = read_with(tmp_path, box(5, 4, 1), categories=others, file=VAL)
    assert found.counts == dict(car=5, person=4)
    written = found.splits['val'].annotations['annotations']
    assert [a['category_id'] for a in written] == [2, 2, 2, 2, 1]
    with pytest.raises(ValueError, match='expected different names'):
        read_with(tmp_path / 'a', categories=[CAR, PERSON, dict(id=9, name='car')])
