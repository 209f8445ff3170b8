"""Starts launch scripts and tools as a user would."""

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

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


@cache
def fork_server():
    """Return a fork server with preloaded imports, which otherwise take seconds."""
    server = multiprocessing.get_context('forkserver')
    server.set_forkserver_preload(
        [
            *('mmengine.runner', 'mmseg.models', 'snnet_mm.elastic'),
            *('yapf.yapflib.yapf_api', 'frozen'),
        ]
    )
    return server


def run_tool(tool, *args, cwd=ROOT):
    """Run a tool in a separate process, by default from the repository root."""
    command = [str(ROOT / 'tools' / tool), *map(str, args)]
    with TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ('stdout', 'stderr')]
        process = fork_server().Process(target=_run_here, args=(command, streams, cwd))
        process.start()
        process.join(600)
        process.kill()
        printed = [stream.read_text() for stream in streams]
    return subprocess.CompletedProcess(command, process.exitcode, *printed)


def _run_here(command, streams, cwd):
    """Run a command line as the interpreter would."""
    import torch
    from yapf.yapflib import yapf_api

    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT), number)
    # Skip config formatting, as in conftest.py.
    yapf_api.FormatCode = lambda text, **style: (text, True)
    torch.set_num_threads(1)
    os.chdir(cwd)
    sys.argv, sys.path[0] = command, str(Path(command[0]).parent)
    sys.stdout.reconfigure(encoding='utf-8')
    runpy.run_path(command[0], run_name='__main__')
