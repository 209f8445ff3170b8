import pytest

from snnet_mm.datasets import check_annotation_file, check_data_folders


@pytest.fixture
def root(tmp_path):
    """A folder with an image."""
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / '0.jpg').touch()
    (tmp_path / 'empty').mkdir()
    return tmp_path


def check(root, key='val_dataloader', prefix='images', **settings):
    data = dict(data_root=str(root), data_prefix=prefix, **settings)
    check_data_folders(dict(dataset=data), key)


@pytest.mark.parametrize('name', ['empty', 'nothing'])
def test_check_data_folders_without_data(root, name):
    check(root, prefix=dict(img_path='images'))
    keys = 'val_dataloader.dataset.data_prefix.img_path'
    with pytest.raises(ValueError, match=rf'{root}/{name}.*{keys}'):
        check(root, prefix=dict(img_path=name))
    with pytest.raises(ValueError, match=f'{name}.*dataset.data_prefix'):
        check(root, prefix=name)


def test_check_data_folders_of_maps_that_are_loaded(root):
    """mmdet's stock Mask2Former for instances inherits a panoptic config's folder."""
    boxes = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
    prefix = dict(img='images', seg='annotations/panoptic')
    check(root, prefix=prefix, pipeline=[boxes])
    for step in (dict(type='LoadPanopticAnnotations'), dict(boxes, with_seg=True)):
        with pytest.raises(ValueError, match='annotations/panoptic'):
            check(root, prefix=prefix, pipeline=[step])


def test_check_data_folders_class_names_are_no_text(root):
    message = "classes='car' is invalid.*val_dataloader.dataset.metainfo.classes"
    names = dict(classes='car')
    for settings in (dict(metainfo=names), dict(dataset=dict(metainfo=names))):
        with pytest.raises(ValueError, match=message):
            check(root, **settings)
    (root / 'names.txt').write_text('car')  # mm reads it
    check(root, metainfo=dict(classes=str(root / 'names.txt')))


@pytest.mark.parametrize('name', ['empty.json', 'nothing.json'])
def test_check_annotation_file(root, name):
    (root / 'empty.json').touch()
    keys = 'val_dataloader.dataset.data_root, val_dataloader.dataset.ann_file'
    with pytest.raises(ValueError, match=f'{name}.*{keys}'):
        check(root, ann_file=name)
    evaluator = dict(ann_file=str(root / name))
    with pytest.raises(ValueError, match='config key: test_evaluator.ann_file'):
        check_annotation_file(evaluator, 'test_evaluator')
    (root / name).write_text('{}')
    check(root, ann_file=name)
    check_annotation_file(evaluator, 'test_evaluator')
