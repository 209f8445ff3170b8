import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


SUPPORTED = 'supported are 3.10, 3.11 and 3.12; choose another with PYTHON=...'
DISK = 'only 3 GB of disk space is free, a new .venv wants 8 GB'
USAGE = 'usage: tools/setup_env.sh demo|test|upstream|ops|docs|lint'
CASES = [
    ('demo', '3.9', 10**9, f'python is Python 3.9, {SUPPORTED}'),
    ('test', '3.11', 3 * 1024**2, DISK),
    ('upstream', '3.11', 3 * 1024**2, DISK.replace('.venv', '.venv-upstream')),
    ('deploy', '3.11', 10**9, USAGE),
]


@pytest.mark.parametrize(('mode', 'version', 'free', 'words'), CASES)
def test_setup_env_says_what_is_missing_in_one_line(
    tmp_path, mode, version, free, words
):
    """In a bare copy, with stubs in place of some commands."""
    repo, stubs = tmp_path / 'repo', tmp_path / 'stubs'
    shutil.copytree(ROOT / 'requirements', repo / 'requirements')
    for name in ('tools/setup_env.sh', 'setup.py'):
        (repo / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, repo / name)
    stubs.mkdir()
    df = f'echo Filesystem; echo x x x {free} x x'
    for name, script in dict(python=f'echo {version}', df=df).items():
        (stubs / name).write_text(f'#!/bin/sh\n{script}\n')
        (stubs / name).chmod(0o755)
    env = dict(os.environ, PATH=f'{stubs}:{os.environ["PATH"]}', PYTHON='python')
    command = ['bash', repo / 'tools/setup_env.sh', mode]
    done = subprocess.run(command, env=env, text=True, capture_output=True)
    assert done.returncode == 1
    assert done.stderr == f'setup_env: {words}\n'
