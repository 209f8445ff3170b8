import runpy
import sys
from pathlib import Path

import pytest
from mmengine.registry import DefaultScope
from mmengine.runner.checkpoint import CheckpointLoader

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    """The tools guard the checkpoints of a whole process: here, of one test."""
    monkeypatch.setattr(CheckpointLoader, '_schemes', dict(CheckpointLoader._schemes))
    monkeypatch.setenv('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '0')


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
