import sys

import pytest

from snnet_mm.utils import ToolParser, check, check_file, run_command


def test_errors_of_users_are_short(capsys, monkeypatch):
    def main():
        ToolParser().parse_args()
        check(False, '--kind', 'FSS', ['FS', 'SFS'])

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit, match='1'):
        run_command(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: kind='FSS'; allowed: 'FS', 'SFS'")
    monkeypatch.setattr(sys, 'argv', ['tool', '--traceback'])
    with pytest.raises(ValueError, match='FSS'):
        run_command(main)


def test_faults_of_the_code_have_their_traceback():
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: 1 / 0)


def test_the_nearest_file_is_named(tmp_path):
    (tmp_path / 'iter_300.pth').touch()
    for path in (None, 'timm://vit', tmp_path / 'iter_300.pth'):
        check_file(path, 'option: --x')
    with pytest.raises(ValueError, match="exist; did you mean 'iter_300.pth' in /"):
        check_file(tmp_path / 'iter_30.pth', 'option: --x')
    (tmp_path / 'a.pth').mkdir()
    with pytest.raises(ValueError, match=r'a.pth is no file \(option: --x\)'):
        check_file(tmp_path / 'a.pth', 'option: --x')
