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


@pytest.mark.parametrize('version', ['3.9', '3.13'])
def test_unsupported_python_is_one_clear_line(setup_env, version):
    done = setup_env('demo', python=f'echo {version}', df=DF.format(10**9))
    assert done.returncode == 1
    assert done.stderr == (
        f'setup_env: python is Python {version}, supported are 3.10, 3.11 and 3.12; '
        'choose another with PYTHON=...\n'
    )


def test_no_disk_space_is_one_clear_line(setup_env):
    done = setup_env('test', python='echo 3.11', df=DF.format(3 * 1024**2))
    assert done.returncode == 1
    assert done.stderr == (
        'setup_env: only 3 GB of disk space is free, a new .venv wants 8 GB\n'
    )


def test_an_unknown_mode_is_refused(setup_env):
    done = setup_env('deploy')
    assert done.returncode == 1
    assert 'usage: tools/setup_env.sh demo|test|lint' in done.stderr
