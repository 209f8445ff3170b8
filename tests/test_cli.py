"""The console script ``snnet``."""

import re
import sys
from pathlib import Path

import pytest

from snnet_mm import cli

ROOT = Path(__file__).parents[1]
NAMES = [
    *('new', 'train', 'test', 'elastic', 'stitch', 'export', 'predict', 'serve'),
    *('info', 'bench'),
]


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


def test_main_lists_commands(run):
    status, text = run()
    assert status is None
    assert re.findall(r'^  (\w+) ', text, re.M) == NAMES
    for tool in re.findall(r'\((tools/.*)\)', text):
        assert (ROOT / tool).is_file()
    assert run('--help') == run('-h') == (None, text)


def test_main_runs_tools(run, tmp_path):
    for command in NAMES:
        status, text = run(command, '--help')
        assert status == 0
        assert text.startswith(f'usage: snnet {command} [-h]')
    assert run('train', str(tmp_path / 'none.py')) == (1, '')
    status, _ = run('trian', 'a.py')
    assert status.startswith("Error: command='trian' is invalid: expected one of new")
