import pytest

from snnet_mm.datasets import check_annotation_file, check_data_folders


def loader(root, **prefixes):
    return dict(dataset=dict(data_root=str(root), data_prefix=prefixes))


def test_folders_with_data_pass(tmp_path):
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / '0.jpg').touch()
    check_data_folders(loader(tmp_path, img_path='images'), 'train_dataloader')


@pytest.mark.parametrize('state', ['does not exist', 'is empty'])
def test_missing_and_empty_folders_are_refused(tmp_path, state):
    if state == 'is empty':
        (tmp_path / 'images').mkdir()
    with pytest.raises(ValueError, match=state) as error:
        check_data_folders(loader(tmp_path, img_path='images'), 'train_dataloader')
    assert repr(str(tmp_path / 'images')) in str(error.value)
    assert 'train_dataloader.dataset.data_prefix.img_path' in str(error.value)


def test_data_without_folders_and_far_away_are_left_alone():
    check_data_folders(None, 'val_dataloader')
    check_data_folders(dict(dataset=dict(type='ToyScenes')), 'val_dataloader')
    check_data_folders(loader('s3://bucket', img_path='images'), 'val_dataloader')


@pytest.mark.parametrize(
    ('content', 'state'), [(None, 'does not exist'), ('', 'is empty')]
)
def test_annotation_files(tmp_path, content, state):
    path = tmp_path / 'all.json'
    if content is not None:
        path.write_text(content)
    data = dict(dataset=dict(data_root=str(tmp_path), ann_file='all.json'))
    keys = 'test_dataloader.dataset.ann_file, test_dataloader.dataset.data_root'
    with pytest.raises(ValueError, match=f'all.json. {state}.*{keys}'):
        check_data_folders(data, 'test_dataloader')
    with pytest.raises(
        ValueError, match=f'{state}.*config keys: test_evaluator.ann_file'
    ):
        check_annotation_file(dict(ann_file=str(path)), 'test_evaluator')
    path.write_text('{}')
    check_data_folders(data, 'test_dataloader')
    check_annotation_file(dict(ann_file=str(path)), 'test_evaluator')


@pytest.mark.parametrize('config', [None, {}, dict(ann_file=''), [dict(type='A')]])
def test_what_names_no_annotation_file_passes(config):
    check_annotation_file(config, 'test_evaluator')
    check_annotation_file(dict(ann_file='s3://a/b.json'), 'test_evaluator')
