"""Forked processes that are killed in the middle of their work."""

import itertools
import os
import signal
import sys
import threading
import traceback

from mmengine.fileio import LocalBackend

from snnet_mm.utils import work_dir_lock

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = 'os.rename', 'os.remove', 'os.truncate', 'half written'


def fork(work, folder, kill_at=None, counted=None):
    """Call ``work`` in a forked process, which inherits imports; return its id.

    The process kills itself at event ``kill_at``, counted from 1. Events are opening a
    file of the folder for writing, writing half of a checkpoint, and renaming,
    truncating or removing a file. ``counted`` restricts them to one name.
    """
    pid = os.fork()
    if pid:
        return pid
    stderr = os.dup(2)
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        LocalBackend.put = _put_in_halves
        sys.addaudithook(_audit(folder, kill_at, counted))
        work()
    except BaseException:
        os.write(stderr, traceback.format_exc().encode())
        os._exit(1)
    os._exit(0)


def wait(pid, seconds=None):
    """Wait for a process, kill it after ``seconds``; return whether it was killed."""
    timer = seconds and threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    if timer:
        timer.start()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if timer:
        timer.cancel()
        timer.join()
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0
    return killed


def _audit(folder, kill_at, counted):
    numbers = itertools.count(1)

    def hook(event, args):
        counts = event in CHANGES or (event == 'open' and args[2] & WRITES)
        counts = counts and counted in (None, event)
        if counts and str(args[0]).startswith(str(folder)) and next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _put_in_halves(backend, obj, filepath):
    with open(filepath, 'wb') as file:
        file.write(obj[: len(obj) // 2])
        file.flush()
        sys.audit('half written', str(filepath))
        file.write(obj[len(obj) // 2 :])


def hold(folder, work):
    """Fork a process that locks a folder for ``work``; return its id once locked."""
    ready, said = os.pipe()
    if pid := os.fork():
        os.read(ready, 1)
        return pid
    with work_dir_lock(folder, work):
        os.write(said, b'.')
        signal.pause()
    os._exit(0)
