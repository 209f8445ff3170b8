import runpy
import sys
from pathlib import Path

import pytest
from mmengine.registry import DefaultScope

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_tool(monkeypatch, tmp_path):
    """Runs a tool inside the test, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(tool, *args):
        path = str(ROOT / 'tools' / tool)
        with monkeypatch.context() as patch:
            patch.setattr(sys, 'argv', [path, *map(str, args)])
            try:
                runpy.run_path(path, run_name='__main__')
            finally:
                DefaultScope._instance_dict.clear()

    return run
