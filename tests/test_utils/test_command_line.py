import shlex
import sys
import warnings
from pathlib import Path

import pytest

from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    run_command,
    tool_command,
)

ROOT = Path(__file__).parents[2]


def test_errors_of_users_are_short(capsys, monkeypatch):
    def main():
        ToolParser().parse_args()
        check(False, '--kind', 'FSS', ['FS', 'SFS'])

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit, match='1'):
        run_command(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: kind='FSS' is invalid")
    monkeypatch.setattr(sys, 'argv', ['tool', '--traceback'])
    with pytest.raises(ValueError, match='FSS'):
        run_command(main)


def test_commands_run_in_the_folder_where_they_are_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    args = 'my model.py', Path('a b') / '1.pth', '--stitch-id', 3
    wanted = "python tools/test.py 'my model.py' 'a b/1.pth' --stitch-id 3"
    assert tool_command('test.py', *args) == wanted
    folder = tmp_path / 'my work'
    folder.mkdir()
    monkeypatch.chdir(folder)
    python, tool, *rest = shlex.split(tool_command('test.py', *args))
    assert (folder / tool).resolve() == ROOT / 'tools' / 'test.py'
    assert [python, *rest] == ['python', *map(str, args)]


def test_the_extra_of_a_missing_package_is_named(capsys, monkeypatch):
    def main():
        raise ModuleNotFoundError("No module named 'ray.serve'", name='ray.serve')

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit, match='1'):
        run_command(main)
    words = "'ray.serve'; pip install 'snnet_mm[ray]' installs it"
    assert words in capsys.readouterr().err


def test_the_nearest_file_is_named(tmp_path):
    (tmp_path / 'iter_300.pth').touch()
    for path in (None, 'timm://vit', tmp_path / 'iter_300.pth'):
        check_file(path, 'option: --x')
    with pytest.raises(ValueError, match="exist; did you mean 'iter_300.pth' in /"):
        check_file(tmp_path / 'iter_30.pth', 'option: --x')
    (tmp_path / 'a.pth').mkdir()
    with pytest.raises(ValueError, match=r'a.pth is no file \(option: --x\)'):
        check_file(tmp_path / 'a.pth', 'option: --x')


@pytest.mark.parametrize('options', [(), ('--verbose',)])
def test_warnings_of_the_packages_below_are_for_verbose(monkeypatch, capsys, options):
    report = 'mIoU 45.2\nalign_corners=False\n│ OneDL │\nWrote it'

    def main():
        print(report)
        for module in ('mmcv.cnn', 'snnet_mm.elastic'):
            warnings.warn_explicit('said', UserWarning, 'a.py', 1, module)

    monkeypatch.setattr(sys, 'argv', ['tool', *options])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        run_command(main)
    assert len(caught) == (2 if options else 1)
    assert capsys.readouterr().out == f'{report}\n'
