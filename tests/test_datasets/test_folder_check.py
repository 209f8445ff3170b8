import pytest

from snnet_mm.datasets import check_data_folders


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
