import pytest

from snnet_mm.datasets import check_annotation_file, check_data_folders


def loader(root, pipeline=(), **prefixes):
    data = dict(data_root=str(root), data_prefix=prefixes, pipeline=pipeline)
    return dict(dataset=data)


@pytest.fixture
def root(tmp_path):
    """A folder with an image."""
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / '0.jpg').touch()
    (tmp_path / 'empty').mkdir()
    return tmp_path


@pytest.mark.parametrize('name', ['empty', 'nothing'])
def test_folders_with_data_pass(root, name):
    check_data_folders(loader(root, img_path='images'), 'train_dataloader')
    data = loader(root, img_path=name)
    keys = 'train_dataloader.dataset.data_prefix.img_path'
    with pytest.raises(ValueError, match=rf'{root}/{name}.*{keys}'):
        check_data_folders(data, 'train_dataloader')
    data['dataset']['data_prefix'] = name
    with pytest.raises(ValueError, match=f'{name}.*dataset.data_prefix'):
        check_data_folders(data, 'train_dataloader')


def test_folders_of_maps_count_where_they_are_loaded(root):
    """mmdet's stock Mask2Former for instances inherits a panoptic config's folder."""
    boxes = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
    prefixes = dict(img='images', seg='annotations/panoptic')
    check_data_folders(loader(root, [boxes], **prefixes), 'train_dataloader')
    for step in (dict(type='LoadPanopticAnnotations'), dict(boxes, with_seg=True)):
        with pytest.raises(ValueError, match='annotations/panoptic'):
            check_data_folders(loader(root, [step], **prefixes), 'train_dataloader')


def test_class_names_are_no_text(root):
    data = loader(root)['dataset']
    data['metainfo'] = dict(classes='car')
    message = "classes='car' is invalid.*val_dataloader.dataset.metainfo.classes"
    for dataset in (data, dict(type='RepeatDataset', dataset=data)):
        with pytest.raises(ValueError, match=message):
            check_data_folders(dict(dataset=dataset), 'val_dataloader')
    (root / 'names.txt').write_text('car')  # mm reads it
    data['metainfo'] = dict(classes=str(root / 'names.txt'))
    check_data_folders(dict(dataset=data), 'val_dataloader')


@pytest.mark.parametrize('name', ['empty.json', 'nothing.json'])
def test_annotation_files(root, name):
    path = root / 'empty.json'
    path.touch()
    data = dict(dataset=dict(data_root=str(root), ann_file=name))
    keys = 'test_dataloader.dataset.data_root, test_dataloader.dataset.ann_file'
    with pytest.raises(ValueError, match=f'{name}.*{keys}'):
        check_data_folders(data, 'test_dataloader')
    evaluator = dict(ann_file=str(root / name))
    with pytest.raises(ValueError, match='config key: test_evaluator.ann_file'):
        check_annotation_file(evaluator, 'test_evaluator')
    (root / name).write_text('{}')
    check_data_folders(data, 'test_dataloader')
    check_annotation_file(evaluator, 'test_evaluator')
