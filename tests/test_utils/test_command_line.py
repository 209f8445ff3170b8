import shlex
import sys
import warnings
from pathlib import Path

import pytest

from snnet_mm.utils import (
    ToolParser,
    check,
    check_file,
    refusal,
    run_command,
    tool_command,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ('error', 'words'),
    [
        (refusal('--kind', 'FSS', ['FS', 'SFS']), "Error: kind='FSS' is invalid"),
        (ModuleNotFoundError('No', name='ray.serve'), "'snnet_mm[ray]' installs"),
    ],
)
def test_run_command_errors_of_users_are_short(capsys, monkeypatch, error, words):
    def main():
        raise error

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit, match='1'):
        run_command(main)
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    monkeypatch.setattr(sys, 'argv', ['tool', '--traceback'])
    with pytest.raises(type(error)):
        run_command(main)


@pytest.mark.parametrize('key', ['budget', 'stitch_id', 'src'])
def test_run_command_names_options_for_arguments(capsys, monkeypatch, key):
    def main():
        parser = ToolParser('')
        parser.add_argument('src')
        parser.add_argument('--budget')
        parser.add_argument('--stitch-id')
        parser.parse_args(['a'])
        raise refusal(f'argument: {key}', 1, 'another')

    monkeypatch.setattr(sys, 'argv', ['tool'])
    with pytest.raises(SystemExit):
        run_command(main)
    named = {'src': 'argument: src'}.get(key, f'option: --{key.replace("_", "-")}')
    assert f'expected another ({named})' in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf'\(argument: {key}\)'):
        check(False, f'argument: {key}', 1, 'another')  # for callers of the function


def test_tool_command_runs_where_it_is_printed(tmp_path, monkeypatch):
    args = 'my model.py', Path('a b') / '1.pth', '--stitch-id', 3
    folder = tmp_path / 'my work'
    folder.mkdir()
    monkeypatch.chdir(folder)
    python, tool, *rest = shlex.split(tool_command('test.py', *args))
    assert (folder / tool).resolve() == ROOT / 'tools' / 'test.py'
    assert [python, *rest] == ['python', *map(str, args)]


def test_tool_command_repeats_snnet(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['snnet train', 'a.py'])
    for tool, words in {
        'test.py': 'snnet test',
        'make_elastic.py': 'snnet elastic',
        'export_stitch.py': 'snnet export',
    }.items():
        assert tool_command(tool, 'a b.py') == f"{words} 'a b.py'"
    assert tool_command('web_demo.py', 1).startswith('python ')  # no such command


def test_check_file_names_the_nearest(tmp_path):
    (tmp_path / 'iter_300.pth').touch()
    for path in (None, 'timm://vit', tmp_path / 'iter_300.pth'):
        check_file(path, 'option: --x')
    with pytest.raises(ValueError, match="mean 'iter_300.pth'"):
        check_file(tmp_path / 'iter_30.pth', 'option: --x')
    with pytest.raises(ValueError, match=r'is not a file \(option: --x\)'):
        check_file(tmp_path, 'option: --x')


@pytest.mark.parametrize('options', [(), ('--verbose',)])
def test_run_command_warnings_of_mm_are_for_verbose(monkeypatch, options):
    def main():
        for module in ('mmcv.cnn', 'snnet_mm.elastic'):
            warnings.warn_explicit('said', UserWarning, 'a.py', 1, module)

    monkeypatch.setattr(sys, 'argv', ['tool', *options])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        run_command(main)
    assert len(caught) == (2 if options else 1)
