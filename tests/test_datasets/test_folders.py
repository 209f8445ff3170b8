import pytest
from labelled_folders import halves, write, write_classes, write_coco, write_masks

from snnet_mm.datasets.folders import read_folder


def test_unknown_folders(tmp_path):
    with pytest.raises(ValueError, match=r'has no images, .*argument: FOLDER'):
        read_folder(tmp_path, 'seg')
    write(tmp_path / 'photos/1.jpg', (40, 60))
    for task, expected in (('seg', 'images/ and masks/'), ('cls', 'every class')):
        message = f'no known layout for .*: expected .*{expected}.*; found photos/'
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path, task)
    with pytest.raises(ValueError, match="task='boxes' is invalid"):
        read_folder(tmp_path, 'boxes')


@pytest.mark.parametrize(
    ('name', 'text', 'what'),
    [
        ('Annotations/1.xml', '<annotation/>', 'is XML of Pascal VOC or CVAT'),
        ('obj.data', 'classes = 2', "is Darknet's, without a data.yaml"),
        ('classes.txt', 'car', "is YOLO's labels without a data.yaml"),
        ('1.json', '{"shapes": [], "imagePath": "1.jpg"}', "is JSON, but not COCO's"),
        ('via.json', '{"1.jpg123": {"regions": []}}', "is JSON, but not COCO's"),
        ('boxes.csv', '1.jpg,0,0,9,9,car', 'is a table'),
    ],
)
def test_formats_that_are_not_read_are_named(tmp_path, name, text, what):
    write(tmp_path / 'images/1.jpg', (40, 60))
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=f'{name} {what}.*convert it to COCO'):
        read_folder(tmp_path, 'det')


def test_layouts_of_other_tasks_are_refused(tmp_path):
    write_masks(tmp_path)
    with pytest.raises(ValueError, match='no known layout for detection.*images/, ma'):
        read_folder(tmp_path, 'det')
    with pytest.raises(ValueError, match=r"\['images', 'masks'\], which are no class"):
        read_folder(tmp_path, 'cls')
    with pytest.raises(ValueError, match='has 8 bits: expected a depth map of 16'):
        read_folder(tmp_path, 'depth')


def test_names_of_classes(tmp_path):
    write_classes(tmp_path)
    found = read_folder(tmp_path, 'cls', ['dog', 'cat'])
    assert found.classes == ['cat', 'dog']
    with pytest.raises(ValueError, match=r"\['a', 'b'\] is invalid.*'cat', 'dog'"):
        read_folder(tmp_path, 'cls', ['a', 'b'])
    with pytest.raises(ValueError, match='is invalid: .*--classes'):
        read_folder(tmp_path, 'cls', ['a', 'a'])


def test_hidden_files_are_no_images(tmp_path):
    write_coco(tmp_path)
    write_masks(tmp_path / 'masked')
    for name in ('.thumbs/0.jpg', '@eaDir/0.jpg', '__MACOSX/0.jpg', '._0.jpg'):
        write(tmp_path / 'train' / name, (9, 9))
        write(tmp_path / 'masked/images/train' / name, (9, 9))
    assert read_folder(tmp_path / 'masked', 'seg').sizes == {(40, 60): 13}
    assert read_folder(tmp_path, 'det').sizes == {(40, 60): 10}


def test_images_of_both_splits_are_named(tmp_path):
    write_masks(tmp_path)
    same = (tmp_path / 'images/train/3.jpg').read_bytes()
    (tmp_path / 'images/val/0.jpg').write_bytes(same)
    (note,) = read_folder(tmp_path, 'seg').notes
    assert note.startswith('1 validation images are training images, too')
    assert note.endswith(': 0.jpg')


def test_a_test_split_is_for_validation_only_without_another(tmp_path):
    write_classes(tmp_path, ('train/', 'test/'))
    found = read_folder(tmp_path, 'cls')
    assert (found.splits['val'].dataset, found.notes) == (dict(data_prefix='test'), [])
    write_classes(tmp_path, ('valid/',))
    found = read_folder(tmp_path, 'cls')
    assert found.splits['val'].dataset == dict(data_prefix='valid')
    assert found.notes == [f'the test split of {tmp_path} is left out: val is used']


def test_masks_of_colours_are_not_read_as_labels(tmp_path):
    write_masks(tmp_path)
    write(tmp_path / 'masks/val/0.png', halves()[..., None].repeat(3, -1))
    with pytest.raises(ValueError, match='mode RGB: expected .*color_masks.py'):
        read_folder(tmp_path, 'seg')
