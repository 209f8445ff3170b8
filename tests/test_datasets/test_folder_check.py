import pytest

from snnet_mm.datasets import check_annotation_file, check_data_folders


def loader(root, pipeline=(), **prefixes):
    data = dict(data_root=str(root), data_prefix=prefixes, pipeline=pipeline)
    return dict(dataset=data)


def test_folders_with_data_pass(tmp_path):
    (tmp_path / 'images').mkdir()
    keys = 'train_dataloader.dataset.data_prefix.img_path'
    for name in ('images', 'nothing'):  # one is empty, one is not there
        data = loader(tmp_path, img_path=name)
        with pytest.raises(ValueError, match=rf'{tmp_path}/{name}.*{keys}'):
            check_data_folders(data, 'train_dataloader')
    (tmp_path / 'images' / '0.jpg').touch()
    check_data_folders(loader(tmp_path, img_path='images'), 'train_dataloader')
    data['dataset']['data_prefix'] = 'none'
    with pytest.raises(ValueError, match='none.*dataset.data_prefix'):
        check_data_folders(data, 'train_dataloader')


def test_folders_of_maps_count_where_they_are_loaded(tmp_path):
    """mmdet's stock Mask2Former for instances inherits a panoptic config's folder."""
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / '0.jpg').touch()
    boxes = dict(type='LoadAnnotations', with_bbox=True, with_mask=True)
    prefixes = dict(img='images', seg='annotations/panoptic')
    check_data_folders(loader(tmp_path, [boxes], **prefixes), 'train_dataloader')
    for step in (dict(type='LoadPanopticAnnotations'), dict(boxes, with_seg=True)):
        with pytest.raises(ValueError, match='annotations/panoptic'):
            check_data_folders(loader(tmp_path, [step], **prefixes), 'train_dataloader')


def test_data_without_folders_and_far_away_are_left_alone():
    check_data_folders(None, 'val_dataloader')
    check_data_folders(dict(dataset=dict(type='ToyScenes')), 'val_dataloader')
    check_data_folders(loader('s3://bucket', img_path='images'), 'val_dataloader')
    for config in (None, [dict()], dict(ann_file='s3://a/b.json')):
        check_annotation_file(config, 'test_evaluator')


@pytest.mark.parametrize('content', [None, ''])
def test_annotation_files(tmp_path, content):
    path = tmp_path / 'all.json'
    if content is not None:
        path.write_text(content)
    data = dict(dataset=dict(data_root=str(tmp_path), ann_file='all.json'))
    keys = 'test_dataloader.dataset.data_root, test_dataloader.dataset.ann_file'
    with pytest.raises(ValueError, match=f'all.json.*{keys}'):
        check_data_folders(data, 'test_dataloader')
    evaluator = dict(ann_file=str(path))
    with pytest.raises(ValueError, match='config key: test_evaluator.ann_file'):
        check_annotation_file(evaluator, 'test_evaluator')
    path.write_text('{}')
    check_data_folders(data, 'test_dataloader')
    check_annotation_file(evaluator, 'test_evaluator')
