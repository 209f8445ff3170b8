import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def setup_env(tmp_path):
    """Run the script in a bare copy, with some commands replaced by stubs."""
    repo, stubs = tmp_path / 'repo', tmp_path / 'stubs'
    stubs.mkdir()
    for name in ('tools/setup_env.sh', 'setup.py'):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, repo / name)
    shutil.copytree(ROOT / 'requirements', repo / 'requirements')

    def run(mode, **commands):
        for name, script in commands.items():
            (stubs / name).write_text(f'#!/bin/sh\n{script}\n')
            (stubs / name).chmod(0o755)
        return subprocess.run(
            ['bash', repo / 'tools' / 'setup_env.sh', mode],
            env=dict(os.environ, PATH=f'{stubs}:{os.environ["PATH"]}', PYTHON='python'),
            text=True,
            capture_output=True,
        )

    return run


DF = 'echo Filesystem; echo x x x {} x x'
PYTHON = (
    'python is Python {}, supported are 3.10, 3.11 and 3.12; '
    'choose another with PYTHON=...'
)
DISK = 'only 3 GB of disk space is free, a new .venv wants 8 GB'


@pytest.mark.parametrize(
    ('mode', 'version', 'free', 'words'),
    [
        ('demo', '3.9', 10**9, PYTHON.format('3.9')),
        ('demo', '3.13', 10**9, PYTHON.format('3.13')),
        ('test', '3.11', 3 * 1024**2, DISK),
        ('deploy', '3.11', 10**9, 'usage: tools/setup_env.sh demo|test|lint'),
    ],
)
def test_what_is_missing_is_one_clear_line(setup_env, mode, version, free, words):
    done = setup_env(mode, python=f'echo {version}', df=DF.format(free))
    assert done.returncode == 1
    assert done.stderr == f'setup_env: {words}\n'
