import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Runs a tool in the test process, which is faster; returns its output."""

    def run(tool, *args):
        path = str(ROOT / 'tools' / tool)
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, 'argv', [path, *map(str, args), '--traceback'])
        runpy.run_path(path, run_name='__main__')
        return capsys.readouterr().out

    return run
