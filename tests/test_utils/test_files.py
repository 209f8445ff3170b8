import os

import pytest

from snnet_mm.utils import (
    UnwritableError,
    atomic_path,
    check_writable,
    link_latest,
    read_json,
    remove_leftovers,
)


def files(folder):
    return sorted(p.name for p in folder.iterdir())


def test_atomic_path_whole_file_takes_its_place(tmp_path):
    path = tmp_path / 'a/b/new.c.json'
    with atomic_path(path) as temporary:
        temporary.write_text('all of it')
        # The name tells the format, and hides.
        assert files(temporary.parent) == [f'.new.c.{os.getpid()}.json']
    assert files(path.parent) == ['new.c.json']
    assert path.read_text() == 'all of it'


@pytest.mark.parametrize('error', [RuntimeError, KeyboardInterrupt])
def test_atomic_path_error_leaves_the_old_file(tmp_path, error):
    path = tmp_path / 'result.txt'
    path.write_text('old')

    def fail():
        with atomic_path(str(path)) as temporary:
            temporary.write_text('half of')
            raise error

    with pytest.raises(error):
        fail()
    assert files(tmp_path) == ['result.txt']
    assert path.read_text() == 'old'


def test_check_writable_makes_folders(tmp_path):
    assert check_writable(tmp_path / 'a/b', '--out').is_dir()
    (tmp_path / 'file').touch()
    with pytest.raises(UnwritableError, match=r'file/a .*\(--out'):
        check_writable(tmp_path / 'file/a', '--out')


def test_remove_leftovers_of_killed_writers(tmp_path):
    kept = ['.iter_1.a.pth', '.iter_1.pth', '.other.12.pth', 'iter_1.12.pth']
    for name in (*kept, '.iter_1.12.pth', '.last_checkpoint.345'):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path, 'iter_*.pth', 'last_checkpoint')
    assert files(tmp_path) == kept


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (None, 'No such file'),
        (b'[' * 100_000, ''),
        (b'\xff\xfe\x00\xd8', "'utf-8' codec"),
        (b'[1]', r'its content is \[1\]'),
        (b'{}', "'a' is missing"),
    ],
)
def test_read_json_says_what_is_wrong(text, message, tmp_path):
    path = tmp_path / 'a.json'
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ValueError, match=f'{path} is not a table: .*{message}'):
        read_json(path, lambda data: data['a'], 'table', 'a tool')


def test_link_latest_replaces_links_alone(tmp_path):
    for name in ('first', 'second'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'results.json').write_text(name)
        link_latest(tmp_path / name / 'results.json', tmp_path)
        assert (tmp_path / 'results.json').read_text() == name
    link_latest(tmp_path / 'first/results.json', tmp_path / 'second')
    assert (tmp_path / 'second/results.json').read_text() == 'second'
