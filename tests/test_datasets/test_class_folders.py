import pytest
from labelled_folders import write, write_classes

from snnet_mm.datasets.folders import read_folder


@pytest.mark.parametrize('splits', [('train/', 'val/'), ('',)])
def test_read_classes_splits_around_them(tmp_path, splits):
    write_classes(tmp_path, splits)
    found = read_folder(tmp_path, 'cls')
    assert (found.task, found.classes) == ('cls', ['cat', 'dog'])
    assert found.counts == [5 * len(splits)] * 2
    assert found.notes == []
    train, val = found.splits['train'], found.splits['val']
    assert train.dataset == dict(data_prefix=splits[0].strip('/') or '.')
    assert val.dataset == dict(data_prefix=splits[-1].strip('/') or '.')
    if len(splits) == 2:
        assert train.annotations[4:6] == ['cat/cat4.jpg 0', 'dog/dog0.jpg 1']
    else:  # one of every class
        assert [line[-1] for line in val.annotations] == ['0', '1']
        assert train.number == 8
        assert not {*train.annotations} & {*val.annotations}


def test_read_classes_splits_inside_them(tmp_path):
    for name in ('cat', 'dog'):
        for split, number in (('train', 4), ('val', 2)):
            for i in range(number):
                write(tmp_path / name / split / f'{split}{i}.jpg', (40, 60))
    found = read_folder(tmp_path, 'cls')
    assert found.counts == [6, 6]
    assert found.splits['train'].number == 8
    assert found.splits['val'].annotations == [
        f'{name}/val/val{i}.jpg {label}'
        for label, name in enumerate(('cat', 'dog'))
        for i in range(2)
    ]


def test_read_classes_notes_oddities(tmp_path):
    write_classes(tmp_path, ('train/', 'val/'))
    write(tmp_path / 'train/cat/old/1.jpg', (40, 60))
    write(tmp_path / 'train/.cache/1.jpg', (40, 60))
    write(tmp_path / 'more/1.jpg', (40, 60))
    (tmp_path / 'train/dog/x.gif').touch()
    found = read_folder(tmp_path, 'cls')
    assert (found.classes, found.counts) == (['cat', 'dog'], [11, 10])
    unread, outside, nested = found.notes
    assert unread.startswith('1 files are left out, by their format (expected one')
    assert outside == f'files of {tmp_path} outside its splits are left out'
    assert nested == '1 images are in folders inside that of their class: cat/old/1'


def test_read_classes_other_classes_in_validation(tmp_path):
    write_classes(tmp_path)
    write(tmp_path / 'val/cow/1.jpg', (40, 60))
    with pytest.raises(ValueError, match=r"val of .*in the classes \['cow'\]"):
        read_folder(tmp_path, 'cls')
