import pytest
import yaml
from labelled_folders import write_yolo

from snnet_mm.datasets.yolo import yolo_to_coco


def test_boxes(tmp_path):
    write_yolo(tmp_path)
    found = yolo_to_coco(tmp_path / 'data.yaml')
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


def test_polygons_and_boxes_among_them(tmp_path):
    write_yolo(tmp_path, '0 0 0 0.5 0 0 0.5\n\n1 0.5 0.5 0.5 0.25')
    found = yolo_to_coco(tmp_path / 'data.yaml')['val']['annotations']
    triangle = dict(id=1, image_id=0, category_id=1, iscrowd=0)
    triangle |= dict(bbox=[0, 0, 30, 20], area=300)
    assert found[0] == triangle | dict(segmentation=[[0, 0, 30, 0, 0, 20]])
    assert found[1]['segmentation'] == [[15, 15, 45, 15, 45, 25, 15, 25]]


@pytest.mark.parametrize(
    ('train', 'val'),
    [
        ('../images/train', '../images/val'),  # Roboflow's
        (['images/train', 'images/val'], None),
        ('train.txt', 'images/train'),
    ],
)
def test_entries_of_splits(tmp_path, train, val):
    write_yolo(tmp_path, train=train, val=val, path='nowhere', nc=2)
    (tmp_path / 'train.txt').write_text('./images/val/0.jpg\nimages/val/1.jpg\n')
    found = yolo_to_coco(tmp_path / 'data.yaml')
    numbers = {split: len(content['images']) for split, content in found.items()}
    listed = train == 'train.txt'
    assert numbers == (
        dict(train=10) if val is None else dict(train=2 if listed else 5, val=5)
    )


@pytest.mark.parametrize(
    ('line', 'settings', 'message'),
    [
        ('2 0.5 0.5 0.5 0.25', {}, r'0.txt:1 is .2 0.5.*expected a class from 0 to 1'),
        ('1 30 20 30 10', {}, r'0.txt:1 is .*in shares of the image from 0 to 1'),
        ('1 0.5 0.5 0.5', {}, '0.txt:1 is .*a box'),
        ('car 0.5 0.5 0.5 0.25', {}, '0.txt:1 is .car'),
        ('1 0.5 0.5 0.5 0.25', dict(val='images/test'), 'has no images/test'),
        ('', dict(names={0: 'car', 2: 'person'}), 'expected those of the classes 0 to'),
    ],
)
def test_faults(tmp_path, line, settings, message):
    write_yolo(tmp_path, line, **settings)
    with pytest.raises(ValueError, match=message):
        yolo_to_coco(tmp_path / 'data.yaml')


def test_names_belong_to_their_numbers(tmp_path):
    write_yolo(tmp_path)
    path = tmp_path / 'data.yaml'
    data = dict(train='images/train', names={1: 'person', 0: 'car'})
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    categories = yolo_to_coco(path)['train']['categories']
    assert categories == [dict(id=1, name='car'), dict(id=2, name='person')]


def test_other_yaml_files(tmp_path):
    (tmp_path / 'some.yaml').write_text(yaml.safe_dump(['names', 'train']))
    assert yolo_to_coco(tmp_path / 'some.yaml') is None
