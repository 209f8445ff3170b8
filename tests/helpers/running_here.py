import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run a tool inside the test, which is quicker; returns what it printed."""

    def run(tool, *args):
        path = str(ROOT / 'tools' / tool)
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, 'argv', [path, *map(str, args), '--traceback'])
        runpy.run_path(path, run_name='__main__')
        return capsys.readouterr().out

    return run
