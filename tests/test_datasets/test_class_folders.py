import pytest
from labelled_folders import write, write_classes

from snnet_mm.datasets.folders import read_folder


@pytest.mark.parametrize('splits', [('train/', 'val/'), ('',)])
def test_a_folder_for_every_class(tmp_path, splits):
    write_classes(tmp_path, splits)
    found = read_folder(tmp_path, 'cls')
    assert (found.task, found.classes) == ('cls', ['cat', 'dog'])
    assert found.counts == [5 * len(splits)] * 2
    assert found.notes == []
    train, val = found.splits['train'], found.splits['val']
    assert train.dataset == dict(data_prefix=splits[0].strip('/'))
    assert val.dataset == dict(data_prefix=splits[-1].strip('/'))
    if len(splits) == 2:
        assert train.annotations[4:6] == ['cat/cat4.jpg 0', 'dog/dog0.jpg 1']
    else:  # one of every class
        assert [line[-1] for line in val.annotations] == ['0', '1']
        assert train.number == 8
        assert not {*train.annotations} & {*val.annotations}


def test_splits_inside_the_folders_of_classes(tmp_path):
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


def test_folders_that_are_no_classes(tmp_path):
    write_classes(tmp_path)
    (tmp_path / 'train/empty').mkdir()
    write(tmp_path / 'train/cat/old/1.jpg', (40, 60))
    write(tmp_path / 'train/.cache/1.jpg', (40, 60))
    (tmp_path / 'train/dog/x.gif').touch()
    found = read_folder(tmp_path, 'cls')
    assert (found.classes, found.counts) == (['cat', 'dog'], [11, 10])
    left_out, nested, empty = found.notes
    assert left_out.startswith('1 files are left out, by their format (expected one')
    assert nested.endswith('read as images of the class: cat/old')
    assert empty == '1 folders without an image that can be read are no classes: empty'


def test_classes_of_almost_one_name(tmp_path):
    write_classes(tmp_path, ('',))
    write(tmp_path / 'Cat/1.jpg', (40, 60))
    write(tmp_path / 'Cat/2.jpg', (40, 60))
    found = read_folder(tmp_path, 'cls')
    assert found.classes == ['Cat', 'cat', 'dog']
    (note,) = found.notes
    assert note.startswith('1 groups of classes have almost one name')
    assert note.endswith('Cat and cat')


def test_other_classes_in_validation(tmp_path):
    write_classes(tmp_path)
    write(tmp_path / 'val/cow/1.jpg', (40, 60))
    with pytest.raises(ValueError, match=r"val of .*in the classes \['cow'\]"):
        read_folder(tmp_path, 'cls')
