import pytest

from snnet_mm.utils import read_json


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (None, 'cannot be read as a table: No such file.*; a tool writes a table'),
        (b'{"a": [1', 'is damaged: .*; a tool writes a table'),
        (b'[' * 100_000, 'is damaged'),
        (b'\xff\xfe\x00\xd8', "is damaged: 'utf-8' codec"),
        (b'[1]', r'is no table: what it holds is \[1\]; allowed: an object'),
        (b'{}', "is no table: 'a' is missing; a tool writes a table"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, message, tmp_path):
    path = tmp_path / 'a.json'
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ValueError, match=f'{path} {message}'):
        read_json(path, lambda data: data['a'], 'table', 'a tool')
