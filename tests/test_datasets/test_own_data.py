import json
import shutil

import cv2
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
)
from PIL import Image

from snnet_mm.datasets.own_data import read_own_data
from snnet_mm.runtime.image_io import RECORD

TRAIN, VAL = (f'annotations/instances_{split}.json' for split in ('train', 'val'))
TRIANGLE = [6, 4, 36, 4, 36, 24]
MAKERS = dict(seg=write_masks, depth=write_depth, det=write_coco, cls=write_classes)
# An image of a task, and its counterpart for validation.
IMAGES = dict(
    seg=('images/train/1.jpg', 'images/val/2.jpg'),
    depth=('images/1.png', None),
    det=('train/1.jpg', 'val/2.jpg'),
    cls=('train/cat/cat1.jpg', 'val/dog/dog2.jpg'),
)


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def names(split):
    """Return the images of a split."""
    if isinstance(split, dict):
        return [image['file_name'] for image in split['images']]
    return [line.rsplit('\t')[0].rsplit(' ')[0] for line in split]


@pytest.mark.parametrize(
    ('train', 'val'),
    [
        ('images/training masks/training', 'images/test masks/test'),
        ('Train/images Train/masks', 'Validation/images Validation/masks'),
    ],
)
def test_masks_and_their_splits(tmp_path, train, val):
    write_masks(tmp_path, train, val)
    found = read_own_data(tmp_path, 'seg')
    assert (found.classes, found.notes) == (['class_0', 'class_1'], [])
    assert found.sizes == [(40, 60)] * 13
    assert found.counts == dict(class_0=13 * 800, class_1=13 * 1600)
    for split, folders, number in (('train', train, 10), ('val', val, 3)):
        images, masks = folders.split()
        lines = [f'{images}/{i}.jpg\t{masks}/{i}.png' for i in range(number)]
        assert found.splits[split] == lines


@pytest.mark.parametrize('task', MAKERS)
def test_splits_are_drawn_by_names(tmp_path, task):
    """Neither a copy elsewhere nor further images change what is drawn."""
    root = tmp_path / 'a'
    if task == 'seg':
        write_masks(root, 'images masks', '')
    elif task == 'cls':
        write_classes(root, [''], 10)
    elif task == 'det':
        write_coco(root, ['images'], 10)
    else:
        write_depth(root, 10)
    found = read_own_data(root, task)
    number = 4 if task == 'cls' else 2
    train, val = map(names, found.splits.values())
    assert (len(train), len(val)) == (number * 4, number)
    assert not {*train} & {*val}
    shutil.copytree(root, tmp_path / 'b')
    assert read_own_data(tmp_path / 'b', task).splits == found.splits
    if task == 'seg':
        for i in range(20, 30):
            write(root / f'images/{i}.jpg', (40, 60))
            write(root / f'masks/{i}.png', halves())
        more = {*names(read_own_data(root, task).splits['val'])}
        assert len(more) == 4
        assert not {*train} & more  # nothing moves from training to validation


@pytest.mark.parametrize('kind', ['1', 'P', 'I;16'])
def test_masks_of_other_modes(tmp_path, kind):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        mask = halves(dtype=np.uint16) if kind == 'I;16' else halves()
        image = Image.fromarray(mask > 0 if kind == '1' else mask)
        if kind == 'P':
            image = image.convert('P')
            image.putpalette([9, 9, 9, 200, 0, 0])
        image.save(path)
    assert Image.open(path).mode == kind
    assert read_own_data(tmp_path, 'seg').counts['class_1'] == 13 * 1600


@pytest.mark.parametrize(
    ('mask', 'classes', 'message'),
    [
        (halves(high=4), 'ab', r'5.png .*\[4\]: .* 0 to 1,.*--classes'),
        (halves(high=4), '', r'\[0, 1, 4\]: .*--classes'),
        (halves(high=256, dtype=np.uint16), '', r'5.png .*\[256\]: expected 0 to 254'),
        (halves(20, 60), '', r'5.png .*\(20, 60\).*\(40, 60\)'),
        ((40, 60), '', '5.png .*mode RGB: .*color_masks.py'),
        (None, '', '5.png cannot be read'),
        (halves(), [*map(str, range(256))], "'256 names' is invalid.*--class"),
        (halves(), 'aa', 'different names'),
    ],
)
def test_wrong_masks_raise(tmp_path, mask, classes, message):
    write_masks(tmp_path)
    path = tmp_path / 'masks/train/5.png'
    path.write_bytes(b'') if mask is None else write(path, mask)
    with pytest.raises(ValueError, match=message):
        read_own_data(tmp_path, 'seg', classes)


@pytest.mark.parametrize(('low', 'classes'), [(0, ''), (0, 'abc'), (255, 'ab')])
def test_masks_of_0_and_255_without_two_names_raise(tmp_path, low, classes):
    write_masks(tmp_path)
    write(tmp_path / 'masks/val/0.png', halves(low=255, high=1))
    assert read_own_data(tmp_path, 'seg', classes).facts == {}
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=low, high=255))
    with pytest.raises(ValueError, match=r'255\]: .*--classes gives both'):
        read_own_data(tmp_path, 'seg', classes)


def test_masks_of_0_and_255_are_two_named_classes(tmp_path):
    write_masks(tmp_path)
    for path in tmp_path.glob('masks/*/*.png'):
        write(path, halves(low=0, high=255))
    found = read_own_data(tmp_path, 'seg', 'ab')
    assert found.facts == dict(label_map={255: 1})
    assert found.notes == ['255 in masks is read as b']
    assert found.counts == dict(a=13 * 800, b=13 * 1600)


def test_files_without_a_partner_are_noted(tmp_path):
    write_masks(tmp_path)
    write(tmp_path / 'images/train/x.jpg', (40, 60))
    write(tmp_path / 'masks/train/y.png', halves())
    found = read_own_data(tmp_path, 'seg')
    assert len(found.splits['train']) == 10
    (note,) = found.notes
    assert note.startswith('2 files in images/ or masks/ are left out')
    assert note.endswith('such as images/train/x.jpg')


def test_depth_maps(tmp_path):
    write_depth(tmp_path)
    write(tmp_path / 'depth/2.png', np.zeros((40, 60), np.uint16))
    found = read_own_data(tmp_path, 'depth')
    assert (found.facts, found.classes) == (dict(depths=(1000, 4200)), [])
    assert found.splits['val'] == ['images/3.png\tdepth/3.png']
    write(tmp_path / 'depth/1.png', halves())
    with pytest.raises(ValueError, match='1.png has 8 bits'):
        read_own_data(tmp_path, 'depth')
    with pytest.raises(ValueError, match='--classes'):
        read_own_data(tmp_path, 'depth', 'a')


@pytest.mark.parametrize('splits', [('train/', 'val/'), ('train/', 'test/')])
def test_class_folders(tmp_path, splits):
    write_classes(tmp_path, splits)
    found = read_own_data(tmp_path, 'cls', ['dog', 'cat'])
    assert (found.classes, found.notes) == (['cat', 'dog'], [])
    lines = ['train/cat/cat4.jpg 0', 'train/dog/dog0.jpg 1']
    assert found.splits['train'][4:6] == lines
    with pytest.raises(ValueError, match="'cat', 'dog'"):
        read_own_data(tmp_path, 'cls', 'ab')
    write(tmp_path / splits[-1] / 'cow/1.jpg', (40, 60))
    with pytest.raises(ValueError, match=r"val .*\['cow'\]"):
        read_own_data(tmp_path, 'cls')


def test_class_folders_with_splits_inside(tmp_path):
    for name in ('cat', 'dog'):
        for split in ('train', 'val', 'test'):
            write(tmp_path / name / split / f'{split}.jpg', (40, 60))
    found = read_own_data(tmp_path, 'cls')
    assert found.splits['val'] == ['cat/val/val.jpg 0', 'dog/val/val.jpg 1']
    assert found.notes == ['splits left out: test']


def test_predictions_are_never_read(tmp_path):
    write_classes(tmp_path)
    write(tmp_path / 'train/masks/red/0.png', np.zeros((9, 9), np.uint8))
    (tmp_path / 'train/masks' / RECORD).write_text('{}')
    assert read_own_data(tmp_path, 'cls').classes == ['cat', 'dog']


def test_coco_files(tmp_path):
    write_coco(tmp_path)
    (tmp_path / 'images').mkdir()
    (tmp_path / 'val').rename(tmp_path / 'images/val')
    shutil.copy(tmp_path / TRAIN, tmp_path / 'annotations/person_keypoints_train.json')
    # Other ids, an object of no area, one without what mmdet reads, and a crowd.
    things = [dict(id=1, name='person'), dict(id=2, name='car')]
    least = dict(image_id=4, category_id=1, bbox=[6, 4, 30, 20])
    more = [least | dict(id=0), least | dict(id=9, area=0)]
    more.append(box(9, 4, 2, iscrowd=1))
    edit(tmp_path / VAL, categories=things, annotations=[box(1, 0, 2), *more])
    found = read_own_data(tmp_path, 'det', ['person', 'car'])
    assert found.classes == ['person', 'car']  # in the order of ids
    assert found.counts == dict(car=5, person=2)
    facts = dict(with_mask=False, share=600**0.5 / 60, max_per_image=3)
    assert found.facts == facts
    val = found.splits['val']
    image = dict(id=3, file_name='images/val/3.jpg', height=40, width=60)
    assert val['images'][3] == image
    assert val['categories'] == [dict(id=1, name='person'), dict(id=2, name='car')]
    kept = [
        (x['id'], x['image_id'], x['category_id'], x['area'], x['iscrowd'])
        for x in val['annotations']
    ]
    areas = [(1, 0, 2, 600, 0), (2, 4, 1, 600, 0), (3, 4, 1, 600, 0), (4, 4, 2, 600, 1)]
    assert kept == areas


def test_coco_files_of_roboflow(tmp_path):
    """Images are beside the file, and a category without objects groups others."""
    group = dict(id=0, name='things', supercategory='none')
    things = [group, dict(id=7, name='car', supercategory='things')]
    write_coco(tmp_path, categories=things, segmentation=[TRIANGLE])
    (tmp_path / 'val').rename(tmp_path / 'valid')
    for file, folder in ((TRAIN, 'train'), (VAL, 'valid')):
        path = tmp_path / folder / '_annotations.coco.json'
        (tmp_path / file).rename(path)
    content = json.loads(path.read_text())
    edit(path, annotations=[*content['annotations'], box(9, 4)])
    found = read_own_data(tmp_path, 'det')
    assert (found.classes, found.facts['with_mask']) == (['car'], True)
    assert names(found.splits['val']) == [f'valid/{i}.jpg' for i in range(5)]
    assert found.notes == ['1 objects without an outline are left out']
    assert found.counts == dict(car=8)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (dict(annotations=[]), 'val of .* has no object'),
        (dict(annotations=[box(1, 9)]), r'val.json .*unknown or twice \[9\]'),
        (dict(annotations=[box(1, 1, 2)]), 'val.json .*KeyError 2'),
        (dict(categories=[dict(id=7)]), "val.json .*KeyError 'name'"),
        (dict(images=[dict(id=1, file_name='x.jpg')]), r"names 1 images .*x.jpg'\]"),
        (
            dict(images=[dict(id=1, file_name='1.jpg', height=60, width=40)]),
            r'1.jpg .*\(40, 60\).*\(60, 40\)',
        ),
        (dict(images=[dict(id=1, file_name=f'{i}.jpg') for i in (0, 1)]), 'twice'),
        (dict(annotations=[box(4, 1, bbox=[1, 2, 3, 4, 5])]), 'val.json .*too many'),
        (None, "val.json is not in COCO's format: JSONDecodeError"),
    ],
)
def test_wrong_coco_files_raise(tmp_path, changes, message):
    write_coco(tmp_path)
    if changes is None:
        (tmp_path / VAL).write_text('{"images": [')
    else:
        kept = {k: [box(1, 1)] for k in ('annotations',) if 'images' in changes}
        edit(tmp_path / VAL, **kept | changes)
    with pytest.raises(ValueError, match=message):
        read_own_data(tmp_path, 'det')


@pytest.mark.parametrize('form', ['images/train labels/train', 'train/{} valid/{}'])
def test_yolo_files(tmp_path, form):
    pytest.importorskip('supervision')
    inside = '{}' in form
    for split in ('train', 'valid'):
        images, labels = (
            tmp_path / (f'{split}/{name}' if inside else f'{name}/{split}')
            for name in ('images', 'labels')
        )
        labels.mkdir(parents=True)
        for i in range(3):
            write(images / f'{split}{i}.jpg', (40, 60))
            (labels / f'{split}{i}.txt').write_text('1 0.5 0.5 0.5 0.25\n')
    (tmp_path / 'data.yaml').write_text('names: [person, car]\n')
    found = read_own_data(tmp_path, 'det')
    assert (found.classes, found.counts) == (['car'], dict(car=6))
    val = found.splits['val']
    folder = images.relative_to(tmp_path)
    assert names(val) == [f'{folder}/valid{i}.jpg' for i in range(3)]
    assert val['annotations'][0]['bbox'] == pytest.approx([15, 15, 30, 10])


@pytest.mark.parametrize('task', MAKERS)
def test_images_of_16_bits_raise(tmp_path, task):
    MAKERS[task](tmp_path)
    path = tmp_path / IMAGES[task][0]
    for channels in (1, 3):
        pixels = np.zeros((40, 60, channels), np.uint16)
        deep = path.with_suffix('.png')
        cv2.imwrite(str(deep), pixels)
        deep.rename(path)
        with pytest.raises(ValueError, match=f'{path} has more than 8 bits'):
            read_own_data(tmp_path, task)


@pytest.mark.parametrize('task', ['seg', 'det', 'cls'])
def test_an_image_for_training_and_validation_raises(tmp_path, task):
    MAKERS[task](tmp_path)
    train, val = (tmp_path / name for name in IMAGES[task])
    shutil.copy(train, val)
    with pytest.raises(ValueError, match=f'{val} for .* {train} for .* one image'):
        read_own_data(tmp_path, task)


@pytest.mark.parametrize('task', ['seg', 'det', 'cls'])
def test_a_split_without_labelled_images_raises(tmp_path, task):
    MAKERS[task](tmp_path)
    gone = dict(seg='masks/val', det=VAL, cls='val/dog')[task]
    path = tmp_path / gone
    path.unlink() if path.is_file() else shutil.rmtree(path)
    if task == 'cls':
        shutil.rmtree(tmp_path / 'val/cat')
    with pytest.raises(ValueError, match=f'val of {tmp_path} has no labelled image'):
        read_own_data(tmp_path, task)


@pytest.mark.parametrize('task', ['seg', 'det'])
@pytest.mark.parametrize(('suffix', 'turned'), [('.jpg', True), ('.webp', False)])
def test_sizes_are_those_of_turned_images(tmp_path, task, suffix, turned):
    MAKERS[task](tmp_path)
    path = tmp_path / IMAGES[task][0]
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.open(path).copy()
    image.save(path.with_suffix(suffix), exif=exif)
    assert cv2.imread(str(path.with_suffix(suffix))).shape[0] == (60 if turned else 40)
    if not turned:
        path.with_suffix(suffix).rename(path)
        assert {*read_own_data(tmp_path, task).sizes} == {(40, 60)}
        return
    with pytest.raises(ValueError, match='EXIF orientation'):
        read_own_data(tmp_path, task)


@pytest.mark.parametrize('task', MAKERS)
def test_an_image_beyond_the_limit_is_named(tmp_path, monkeypatch, task):
    MAKERS[task](tmp_path)
    path = tmp_path / IMAGES[task][0]
    Image.new('L', (300, 300)).save(path)
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', 40 * 60 * 2)
    with pytest.raises(ValueError, match=f'{path} cannot .*exceeds'):
        read_own_data(tmp_path, task)


@pytest.mark.parametrize(
    ('make', 'task', 'words'),
    [
        (write_masks, 'det', r'--task det: expected annotations/\*.json .*own_data.md'),
        (write_classes, 'seg', '--task seg: expected images/ and masks/'),
        (write_masks, 'depth', 'images/ and depth/'),
        (lambda root: write(root / 'a/1.jpg', (9, 9)), 'cls', 'every class'),
        (lambda root: None, 'seg', 'argument: FOLDER'),
        (lambda root: write_masks(root, val='images/1 masks/2'), 'det', 'expected'),
        (lambda root: write_classes(root, [''], 1), 'cls', '0.jpg is the only image'),
    ],
)
def test_other_layouts_raise(tmp_path, make, task, words):
    make(tmp_path)
    with pytest.raises(ValueError, match=words):
        read_own_data(tmp_path, task)
