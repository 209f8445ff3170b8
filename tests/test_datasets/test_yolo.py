import pytest
import yaml
from labelled_folders import write, write_yolo

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.labelled_folder import Findings
from snnet_mm.datasets.yolo import read_yolo


def convert(root):
    findings = Findings()
    return read_yolo(root, findings), findings.notes()


def test_read_yolo_boxes(tmp_path):
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
    (note,) = notes
    assert note.startswith('2 label files of images do not exist: these are background')
    assert note.endswith(f'{tmp_path}/labels/val/4.txt')


def test_read_folder_yolo(tmp_path):
    write_yolo(tmp_path, test='images/test')
    write(tmp_path / 'images/test/0.jpg', (40, 60))
    found = read_folder(tmp_path, 'det')
    assert (found.task, found.classes) == ('det', ['car', 'person'])
    assert (found.counts, found.facts['max_per_image']) == ([0, 8], 1)
    val = found.splits['val']
    assert val.annotations['images'][0]['file_name'] == 'images/val/0.jpg'
    assert val.dataset == dict(data_prefix=dict(img='.'))
    assert '1 classes without an object: car' in found.notes
    assert f'the test split of {tmp_path} is left out: val is used' in found.notes
    write_yolo(tmp_path, val='images/train')
    notes = read_folder(tmp_path, 'det').notes
    assert any(n.startswith('5 validation images are training images') for n in notes)


def test_read_yolo_polygons_and_oriented_boxes(tmp_path):
    lines = '0 0 0 0.5 0 0 0.5', '1 0.5 0 1 0.5 0.5 1 0 0.5', '1 0.5 0.5 0.5 0.25'
    write_yolo(tmp_path, '\n\n'.join(lines))
    triangle, oriented, box = convert(tmp_path)[0]['val']['annotations'][:3]
    expected = dict(id=1, image_id=0, category_id=1, iscrowd=0)
    expected |= dict(bbox=[0, 0, 30, 20], area=300)
    assert triangle == expected | dict(segmentation=[[0, 0, 30, 0, 0, 20]])
    assert oriented['segmentation'] == [[30, 0, 60, 20, 30, 40, 0, 20]]
    assert (oriented['bbox'], oriented['area']) == ([0, 0, 60, 40], 1200)
    assert 'segmentation' not in box


@pytest.mark.parametrize('points', ['0.1 0.1', '0.1 0.1 2 0.2 0.2 1'])
def test_read_yolo_boxes_of_poses(tmp_path, points):
    """Without the key, an even number of coordinates would be a polygon."""
    write_yolo(tmp_path, f'1 0.5 0.5 0.5 0.25 {points}', kpt_shape=[2, 3])
    x = convert(tmp_path)[0]['train']['annotations'][0]
    assert (x['bbox'], 'segmentation' in x) == ([15, 15, 30, 10], False)


@pytest.mark.parametrize(
    ('train', 'noted'),
    [
        ('../images/train', False),  # Roboflow's
        ('/content/my_data/images/train', True),
        ('D:\\data\\images\\train', True),
        (['images/train'], False),
    ],
)
def test_read_yolo_paths_of_folders(tmp_path, train, noted):
    write_yolo(tmp_path, train=train, path='nowhere', nc=2)
    found, notes = convert(tmp_path)
    names = [image['file_name'] for image in found['train']['images']]
    assert names == [f'images/train/{i}.jpg' for i in range(5)]
    assert any('1 paths do not exist here: read by' in n for n in notes) is noted


def test_read_yolo_labels_beside_images(tmp_path):
    """A folder called images above the data is none of theirs."""
    root = tmp_path / 'images/my_data'
    write_yolo(root, train='a')
    for i in range(3):
        write(root / f'a/{i}.jpg', (40, 60))
        (root / f'a/{i}.txt').write_text('0 0.5 0.5 0.5 0.5')
    assert len(convert(root)[0]['train']['annotations']) == 3


@pytest.mark.parametrize(
    ('line', 'settings', 'message'),
    [
        ('2 0.5 0.5 0.5 0.25', {}, r'0.txt:1 is .2 0.5.*expected a class from 0 to 1'),
        ('1 30 20 30 10', {}, r'0.txt:1 is .*in shares of the image from 0 to 1'),
        ('1 nan 0.5 0.5 0.5', {}, r'0.txt:1 is .*in shares of the image from 0 to 1'),
        ('1 0.5 0.5 0.5', {}, '0.txt:1 is .*a box'),
        ('1 0.5 0.5 0.5 0.5 0.9', {}, '0.txt:1 is .*a box'),
        ('car 0.5 0.5 0.5 0.25', {}, '0.txt:1 is .car'),
        ('', dict(val='images/test'), 'has no folder images/test'),
        ('', dict(names='car'), 'has names: car and nc: None: expected nc'),
        ('', dict(names=['car', 'car']), 'expected nc different names'),
        ('', dict(nc=3), 'nc: 3: expected nc different'),
        ('', {}, r'no object in 5 images: .*labels/train/4.txt'),
    ],
)
def test_read_yolo_faults(tmp_path, line, settings, message):
    write_yolo(tmp_path, line, **settings)
    with pytest.raises(ValueError, match=message):
        read_folder(tmp_path, 'det')


@pytest.mark.parametrize(
    ('text', 'names'),
    [
        ('[no, 1.0, ~]', ['no', '1.0', '~']),
        ('{1: person, 0: null}', ['null', 'person']),
        ('{0: car, 2: person}', None),
    ],
)
def test_read_yolo_names_as_written(tmp_path, text, names):
    write_yolo(tmp_path, '0 0.5 0.5 0.5 0.25')
    text = f'train: images/train\nval: images/val\nnames: {text}\n'
    (tmp_path / 'data.yaml').write_text('\ufeff' + text, encoding='utf-8')
    if names is None:
        with pytest.raises(ValueError, match='different names, of the classes 0, 1'):
            convert(tmp_path)
    else:
        categories = convert(tmp_path)[0]['train']['categories']
        assert categories == [dict(id=i, name=n) for i, n in enumerate(names, 1)]


def test_read_yolo_other_yaml_files(tmp_path):
    (tmp_path / 'some.yaml').write_text(yaml.safe_dump(['names', 'train']))
    assert convert(tmp_path)[0] is None
    write_yolo(tmp_path)
    (tmp_path / 'old.yaml').write_text((tmp_path / 'data.yaml').read_text())
    with pytest.raises(ValueError, match=r'data.yaml.*old.yaml.*: expected one'):
        convert(tmp_path)
    (tmp_path / 'old.yaml').write_text('a: [')
    with pytest.raises(ValueError, match='old.yaml is no YAML'):
        convert(tmp_path)
