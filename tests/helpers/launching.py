"""Starts launch scripts and tools as a user would."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_script(script, *args, cwd, **env):
    """Run a launch script in another folder, with this interpreter found first."""
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        port = sock.getsockname()[1]
    path = f'{Path(sys.executable).parent}:{os.environ["PATH"]}'
    env = dict(PATH=path, PORT=str(port), PYTHONPATH=str(Path(__file__).parent)) | env
    return subprocess.run(
        [str(ROOT / 'tools' / script), *map(str, args)],
        cwd=cwd,
        env=dict(os.environ, OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES='', **env),
        text=True,
        capture_output=True,
        timeout=600,
    )


def run_tool(tool, *args, cwd=ROOT):
    """Run a tool in a separate process, by default from the repository root."""
    done = subprocess.run(
        [sys.executable, ROOT / 'tools' / tool, *map(str, args)],
        cwd=cwd,
        env=dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=str(ROOT)),
        text=True,
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
