import json

import pytest


@pytest.fixture
def images(tmp_path):
    for split, number in (('train', 6), ('test', 2)):
        for label in ('a', 'b'):
            folder = tmp_path / 'all' / split / label
            folder.mkdir(parents=True)
            for i in range(number):
                (folder / f'{i}.jpg').write_text(f'{split} {label} {i}')
    return tmp_path / 'all'


@pytest.fixture
def split(run_here):
    def run(*args):
        run_here('dataset_converters/split.py', *args)

    return run


def test_split_shots_are_drawn_by_the_seed(split, images, tmp_path):
    drawn = []
    for name, seed in (('x', 3), ('y', 3), ('z', 4)):
        split(images, tmp_path / name, '--shots', 2, '--seed', seed)
        found = sorted((tmp_path / name / 'train').glob('*/*.jpg'))
        assert [p.parent.name for p in found] == ['a', 'a', 'b', 'b']
        assert all(p.read_text() == f'train {p.parent.name} {p.stem}' for p in found)
        drawn.append((tmp_path / name / 'train' / 'ids.txt').read_text())
        assert drawn[-1].splitlines()[0] == f'a/{found[0].name} a'
    assert drawn[0] == drawn[1] != drawn[2]
    assert (tmp_path / 'x' / 'test' / 'b' / '1.jpg').read_text() == 'test b 1'
    with pytest.raises(ValueError, match='--shots=7 '):
        split(images, tmp_path / 'few', '--shots', 7)


def test_split_val_part_is_of_training_images(split, images, tmp_path):
    for name in ('x', 'y'):
        split(images, tmp_path / name, '--val-part', 0.3)
    found = {}
    for part, number in (('train', 2 * 4), ('test', 2 * 2)):
        files = [*(tmp_path / 'x' / part).glob('*/*.jpg')]
        assert len(files) == number
        found |= {p.read_text(): p.parent.name for p in files}
    assert found == {f'train {c} {i}': c for c in 'ab' for i in range(6)}
    lists = [(tmp_path / name / 'test/ids.txt').read_text() for name in 'xy']
    assert lists[0] == lists[1]
    for part in (0, 0.99, 1):
        with pytest.raises(ValueError, match=f'--val-part={float(part)} '):
            split(images, tmp_path / 'none', '--val-part', part)


def test_split_lists_of_both_kinds(split, images, tmp_path):
    train, test = tmp_path / 'train.json', tmp_path / 'test.txt'
    train.write_text(json.dumps({'train/a/0.jpg': 9, 'train/b/0.jpg': 10}))
    test.write_text('test/a/1.jpg 9\ntest/b/1.jpg 10\n')
    split(images, tmp_path / 'out', '--lists', train, test)
    found = {
        str(p.relative_to(tmp_path / 'out')): p.read_text()
        for p in (tmp_path / 'out').rglob('*.jpg')
    }
    assert found == {
        'train/09/train_a_0.jpg': 'train a 0',
        'train/10/train_b_0.jpg': 'train b 0',
        'test/09/test_a_1.jpg': 'test a 1',
        'test/10/test_b_1.jpg': 'test b 1',
    }
    with pytest.raises(ValueError, match='out already exists'):
        split(images, tmp_path / 'out', '--lists', train, test)
    test.write_text('none.jpg 1\n')
    with pytest.raises(ValueError, match='none.jpg'):
        split(images, tmp_path / 'more', '--lists', train, test)
