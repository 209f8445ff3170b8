"""Records of requests: a folder that has another one is named with the difference."""

import os

import pytest

from snnet_mm.runtime.record import check_request, file_facts, read_record


@pytest.mark.parametrize('content', [None, '', '{"request": ', '[1]'])
def test_read_record_of_no_record_is_empty(tmp_path, content):
    if content is not None:
        (tmp_path / 'a.json').write_text(content)
    assert read_record(tmp_path / 'a.json') == {}


@pytest.mark.parametrize(
    ('known', 'words'),
    [
        (dict(model='a', stitch=3), 'with stitch=4, not with stitch=3, or --again'),
        (dict(model='a'), 'with stitch=4, not with stitch=None, or --again'),
        (
            dict(model='b', stitch=4, size=9),
            "with model='a', size=None, not with model='b', size=9, or --again",
        ),
    ],
)
def test_check_request_names_what_differs(known, words):
    wanted = dict(model='a', stitch=4)
    check_request(wanted, dict(wanted), '--out', 'masks', '--again')
    expected = f"out='masks' is invalid: expected results {words} (option: --out)"
    with pytest.raises(ValueError) as error:
        check_request(known, wanted, '--out', 'masks', '--again')
    assert str(error.value) == expected


def test_file_facts_follow_size_and_time(tmp_path):
    path = tmp_path / 'a'
    assert file_facts(path) is None
    path.write_text('abc')
    os.utime(path, ns=(5, 7))
    assert file_facts(path) == [3, 7]
