"""The console script ``snnet``."""

import re
import sys
from pathlib import Path

import pytest

from snnet_mm import cli

ROOT = Path(__file__).parents[1]
NAMES = ['train', 'test', 'elastic', 'stitch', 'export', 'predict', 'serve', 'bench']


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs the script; returns its exit status and what it printed."""

    def call(*args):
        monkeypatch.setattr(sys, 'argv', ['snnet', *args])
        status = None
        try:
            cli.main()
        except SystemExit as end:
            status = end.code
        return status, capsys.readouterr().out

    return call


def test_commands_are_listed(run):
    status, text = run()
    assert status is None
    assert re.findall(r'^  (\w+) ', text, re.M) == NAMES
    for tool in re.findall(r'\((tools/.*)\)', text):
        assert (ROOT / tool).is_file()
    assert run('--help') == run('-h') == (None, text)


@pytest.mark.parametrize('command', NAMES)
def test_a_command_is_a_tool(run, command):
    if command == 'serve':
        pytest.importorskip('ray')
    status, text = run(command, '--help')
    assert status == 0
    assert text.startswith(f'usage: snnet {command} [-h]')


def test_arguments_and_errors_are_those_of_the_tool(run, tmp_path):
    status, text = run('train', str(tmp_path / 'none.py'))
    assert (status, text) == (1, '')
    status, _ = run('trian', 'a.py')
    assert status == (
        f"Error: command='trian' is invalid: expected one of {', '.join(NAMES)}"
    )
