import pytest
from labelled_folders import write, write_classes, write_coco, write_masks

from snnet_mm.datasets.folders import read_folder


def test_read_folder_unknown_layout(tmp_path):
    with pytest.raises(ValueError, match=r'has no images, .*argument: FOLDER'):
        read_folder(tmp_path, 'seg')
    write(tmp_path / 'pictures/1.jpg', (40, 60))
    for task, expected in (('seg', 'images/ and masks/'), ('cls', 'every class')):
        message = f'no known layout for .*: expected .*{expected}.*; found pictures/'
        with pytest.raises(ValueError, match=message):
            read_folder(tmp_path, task)
    (tmp_path / 'via.json').write_text('{"1.jpg123": {"regions": []}}')
    with pytest.raises(
        ValueError, match='found pictures/, via.json; .*own_data.md con'
    ):
        read_folder(tmp_path, 'det')
    with pytest.raises(ValueError, match="task='boxes' is invalid"):
        read_folder(tmp_path, 'boxes')


VOC = """<annotation><object><name>car</name><bndbox><xmin>16</xmin><ymin>11</ymin>
<xmax>45</xmax><ymax>30</ymax></bndbox></object></annotation>"""


def test_read_folder_voc_by_supervision(tmp_path):
    """The conversion in docs/tutorials/own_data.md."""
    supervision = pytest.importorskip('supervision')
    for i in range(3):
        write(tmp_path / f'JPEGImages/{i}.jpg', (40, 60))
        (tmp_path / 'Annotations').mkdir(exist_ok=True)
        (tmp_path / f'Annotations/{i}.xml').write_text(VOC)
    data = supervision.DetectionDataset.from_pascal_voc(
        str(tmp_path / 'JPEGImages'), str(tmp_path / 'Annotations')
    )
    data.as_coco(annotations_path=str(tmp_path / 'annotations.json'))
    found = read_folder(tmp_path, 'det')
    assert (found.classes, found.counts) == (['car'], [3])
    (x,) = found.splits['val'].annotations['annotations']
    assert x['bbox'] == [15, 10, 30, 20]
    assert found.splits['val'].dataset == dict(data_prefix=dict(img='JPEGImages'))


def test_read_folder_layouts_of_other_tasks(tmp_path):
    write_masks(tmp_path)
    with pytest.raises(ValueError, match='no known layout for detection.*images/, ma'):
        read_folder(tmp_path, 'det')
    with pytest.raises(ValueError, match=r"\['images', 'masks'\], which are no class"):
        read_folder(tmp_path, 'cls')
    with pytest.raises(ValueError, match='has 8 bits: expected a depth map of 16'):
        read_folder(tmp_path, 'depth')


def test_read_folder_names_of_classes(tmp_path):
    write_classes(tmp_path)
    found = read_folder(tmp_path, 'cls', ['dog', 'cat'])
    assert found.classes == ['cat', 'dog']
    with pytest.raises(ValueError, match=r"\['a', 'b'\] is invalid.*'cat', 'dog'"):
        read_folder(tmp_path, 'cls', ['a', 'b'])
    with pytest.raises(ValueError, match='is invalid: .*--classes'):
        read_folder(tmp_path, 'cls', ['a', 'a'])


def test_read_folder_hidden_files(tmp_path):
    write_coco(tmp_path)
    write_masks(tmp_path / 'masked')
    for name in ('.thumbs/0.jpg', '@eaDir/0.jpg', '__MACOSX/0.jpg', '._0.jpg'):
        write(tmp_path / 'train' / name, (9, 9))
        write(tmp_path / 'masked/images/train' / name, (9, 9))
    assert read_folder(tmp_path / 'masked', 'seg').sizes == {(40, 60): 13}
    assert read_folder(tmp_path, 'det').sizes == {(40, 60): 10}


def test_read_folder_equal_images_in_both_splits(tmp_path):
    write_masks(tmp_path)
    same = (tmp_path / 'images/train/3.jpg').read_bytes()
    (tmp_path / 'images/val/0.jpg').write_bytes(same)
    (note,) = read_folder(tmp_path, 'seg').notes
    assert note.startswith('1 validation images are training images, too')
    assert note.endswith(': 0.jpg')


def test_read_folder_test_split_validates_without_another(tmp_path):
    write_classes(tmp_path, ('train/', 'test/'))
    found = read_folder(tmp_path, 'cls')
    assert (found.splits['val'].dataset, found.notes) == (dict(data_prefix='test'), [])
    write_classes(tmp_path, ('valid/',))
    found = read_folder(tmp_path, 'cls')
    assert found.splits['val'].dataset == dict(data_prefix='valid')
    assert found.notes == [f'the test split of {tmp_path} is left out: val is used']
