import pytest
import yaml
from labelled_folders import write, write_yolo
from PIL import Image

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.labelled_folder import Findings
from snnet_mm.datasets.yolo import find_yolo, yolo_to_coco


def convert(root):
    findings = Findings()
    return yolo_to_coco(*find_yolo(root), findings), findings.notes()


def test_boxes(tmp_path):
    write_yolo(tmp_path)
    found, notes = convert(tmp_path)
    assert found.keys() == {'train', 'val'}
    content = found['train']
    assert content['categories'] == [dict(id=1, name='car'), dict(id=2, name='person')]
    first = dict(id=0, file_name='images/train/0.jpg', height=40, width=60)
    assert content['images'][0] == first
    assert len(content['images']) == 5
    # The middle of 60x40 pixels, half as wide and a quarter as high.
    expected = dict(bbox=[15, 15, 30, 10], area=300, iscrowd=0)
    expected |= dict(id=4, image_id=3, category_id=2)
    assert content['annotations'][3] == expected
    assert len(content['annotations']) == 4
    assert notes == ['2 images have no label file: they are background: 4.jpg, 4.jpg']


def test_a_folder(tmp_path):
    write_yolo(tmp_path)
    found = read_folder(tmp_path, 'det')
    assert (found.task, found.classes) == ('det', ['car', 'person'])
    assert (found.counts, found.facts['max_per_image']) == ([0, 8], 1)
    val = found.splits['val']
    assert val.annotations['images'][0]['file_name'] == 'images/val/0.jpg'
    assert val.dataset == dict(data_prefix=dict(img='.'))
    assert '1 classes without an object: car' in found.notes


def test_polygons_and_boxes_among_them(tmp_path):
    write_yolo(tmp_path, '0 0 0 0.5 0 0 0.5\n\n1 0.5 0.5 0.5 0.25')
    found = convert(tmp_path)[0]['val']['annotations']
    triangle = dict(id=1, image_id=0, category_id=1, iscrowd=0)
    triangle |= dict(bbox=[0, 0, 30, 20], area=300)
    assert found[0] == triangle | dict(segmentation=[[0, 0, 30, 0, 0, 20]])
    assert found[1]['segmentation'] == [[15, 15, 45, 15, 45, 25, 15, 25]]


def test_oriented_boxes_are_outlines(tmp_path):
    write_yolo(tmp_path, '1 0.5 0 1 0.5 0.5 1 0 0.5')
    x = convert(tmp_path)[0]['train']['annotations'][0]
    assert x['segmentation'] == [[30, 0, 60, 20, 30, 40, 0, 20]]
    assert (x['bbox'], x['area']) == ([0, 0, 60, 40], 1200)


@pytest.mark.parametrize('points', ['0.1 0.1', '0.1 0.1 2 0.2 0.2 1'])
def test_keypoints_are_left_out(tmp_path, points):
    """Without the key, an even number of them would be a polygon."""
    write_yolo(tmp_path, f'1 0.5 0.5 0.5 0.25 {points}', kpt_shape=[2, 3])
    found, notes = convert(tmp_path)
    x = found['train']['annotations'][0]
    assert (x['bbox'], 'segmentation' in x) == ([15, 15, 30, 10], False)
    assert notes[0] == '2 label files have keypoints, which are not read: train, val'


@pytest.mark.parametrize(
    ('train', 'val', 'number'),
    [
        ('../images/train', '../images/val', 5),  # Roboflow's
        ('/content/my_data/images/train', '/content/my_data/images/val', 5),
        ('D:\\data\\images\\train', 'images\\val', 5),
        (['images/train'], ['images/val'], 5),
        ('train.txt', 'images/train', 3),
        ('lists/train.txt', 'images/train', 3),
    ],
)
def test_entries_of_splits(tmp_path, train, val, number):
    write_yolo(tmp_path, train=train, val=val, path='nowhere', nc=2)
    (tmp_path / 'images/val/3.jpg').rename(tmp_path / 'images/val/a b.jpg')
    lines = './images/val/0.jpg\nimages/val/1.jpg\n\nC:\\x\\images\\val\\a b.jpg\n'
    for name in ('train.txt', 'lists/train.txt'):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines)
    found, _ = convert(tmp_path)
    numbers = {split: len(content['images']) for split, content in found.items()}
    assert numbers == dict(train=number, val=5)
    folder = 'val' if number == 3 else 'train'
    first = found['train']['images'][0]['file_name']
    assert first == f'images/{folder}/0.jpg'


def test_paths_of_another_machine_are_noted(tmp_path):
    write_yolo(tmp_path, path='/home/me/data')
    assert len(convert(tmp_path)[1]) == 1  # relative to the file, too
    write_yolo(tmp_path, train='/home/me/images/train')
    notes = convert(tmp_path)[1]
    assert '1 paths do not exist here: read by their last folders' in notes[0]


def test_labels_beside_images_and_in_folders_named_images_above(tmp_path):
    root = tmp_path / 'images/my_data'
    write_yolo(root, train='a', val='images/val')
    for i in range(3):
        write(root / f'a/{i}.jpg', (40, 60))
        (root / f'a/{i}.txt').write_text('0 0.5 0.5 0.5 0.5')
    (root / 'a/classes.txt').write_text('car')
    (root / 'a/9.txt').write_text('0 0.5 0.5 0.5 0.5')
    found, notes = convert(root)
    assert len(found['train']['annotations']) == 3
    assert notes == [
        '1 images have no label file: they are background: 4.jpg',
        '1 label files belong to no image that is read: 9.txt',
    ]


def test_equal_splits_and_test_splits(tmp_path):
    write_yolo(tmp_path, val='images/train')
    found = read_folder(tmp_path, 'det')
    assert [part.number for part in found.splits.values()] == [4, 1]
    assert any(n.startswith('1 val is the same as train') for n in found.notes)
    write_yolo(tmp_path, test='images/test')
    write(tmp_path / 'images/test/0.jpg', (40, 60))
    notes = read_folder(tmp_path, 'det').notes
    assert f'the test split of {tmp_path} is left out: val is used' in notes


@pytest.mark.parametrize(
    ('line', 'settings', 'message'),
    [
        ('2 0.5 0.5 0.5 0.25', {}, r'0.txt:1 is .2 0.5.*expected a class from 0 to 1'),
        ('1 30 20 30 10', {}, r'0.txt:1 is .*in shares of the image from 0 to 1'),
        ('1 nan 0.5 0.5 0.5', {}, r'0.txt:1 is .*in shares of the image from 0 to 1'),
        ('1 0.5 0.5 0.5', {}, '0.txt:1 is .*a box'),
        ('1 0.5 0.5 0.5 0.5 0.9', {}, '0.txt:1 is .*a box'),
        ('car 0.5 0.5 0.5 0.25', {}, '0.txt:1 is .car'),
        ('1 0.5 0.5 0.5 0.25', dict(val='images/test'), 'has no images/test'),
        ('', dict(names={0: 'car', 2: 'person'}), 'expected those of the classes 0 to'),
        ('', dict(names='car'), "has names: 'car': expected a list of texts"),
        ('', dict(names=['car', 'car']), 'expected nc different names'),
        ('', dict(nc=3), r"nc: 3 and \['car', 'person'\]: expected nc different"),
        ('', dict(train='list.txt'), 'list.txt:1 names x.jpg, which is missing'),
    ],
)
def test_faults(tmp_path, line, settings, message):
    if settings.get('names') and isinstance(settings['names'], dict):
        settings = dict(names=settings['names'])
    write_yolo(tmp_path, line, **settings)
    (tmp_path / 'list.txt').write_text('x.jpg\n')
    with pytest.raises(ValueError, match=message):
        convert(tmp_path)


def test_no_label_at_all(tmp_path):
    write_yolo(tmp_path)
    (tmp_path / 'labels').rename(tmp_path / 'texts')
    with pytest.raises(
        ValueError, match='no label file of any image, such as .*labels/'
    ):
        convert(tmp_path)


def test_images_of_formats_that_are_not_read(tmp_path):
    write_yolo(tmp_path)
    for path in list((tmp_path / 'images/train').iterdir()):
        Image.open(path).save(path.with_suffix('.gif'))
        path.unlink()
    with pytest.raises(ValueError, match='no images in train: .*5 files .*: 0.gif'):
        convert(tmp_path)


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('[no, yes]', ['no', 'yes']),
        ('[1, 1.0]', ['1', '1.0']),
        ('{1: person, 0: null}', ['null', 'person']),
        ('[2024-01-01, ~]', ['2024-01-01', '~']),
    ],
)
def test_names_are_those_that_are_written(tmp_path, text, names):
    write_yolo(tmp_path)
    text = f'train: images/train\nval: images/val\nnames: {text}\n'
    (tmp_path / 'data.yaml').write_text('\ufeff' + text, encoding='utf-8')
    categories = convert(tmp_path)[0]['train']['categories']
    assert categories == [dict(id=i, name=n) for i, n in enumerate(names, 1)]


def test_other_yaml_files(tmp_path):
    (tmp_path / 'some.yaml').write_text(yaml.safe_dump(['names', 'train']))
    assert find_yolo(tmp_path) is None
    write_yolo(tmp_path)
    (tmp_path / 'old.yaml').write_text((tmp_path / 'data.yaml').read_text())
    with pytest.raises(ValueError, match=r"\['data.yaml', 'old.yaml'\]: expected one"):
        find_yolo(tmp_path)
    (tmp_path / 'old.yaml').write_text('a: [')
    with pytest.raises(ValueError, match='old.yaml is no YAML'):
        find_yolo(tmp_path)
