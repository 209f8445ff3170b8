"""Processes that are killed in the middle of their work."""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from mmengine.fileio import LocalBackend

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = 'os.rename', 'os.remove', 'os.truncate', 'half written'


def fork(work, folder, kill_at=None, counted=None):
    """Do some work in a process that shares what is imported here.

    Args:
        work: Called in the process.
        folder: Only files in it count.
        kill_at: The process kills itself at this event, counted from 1: when it opens a
            file for writing, has written half of a checkpoint, renames, truncates or
            removes one.
        counted: Count only events of this name.

    Returns:
        The process id.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        LocalBackend.put = _put_in_halves
        sys.addaudithook(_Events(folder, kill_at, counted))
        work()
    except BaseException:
        Path(folder, 'error').write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def wait(pid, seconds=None):
    """Wait for the end, or for some seconds and kill it; whether it was killed."""
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


class _Events:
    def __init__(self, folder, kill_at, counted):
        self.folder, self.kill_at, self.count = str(folder), kill_at, 0
        self.counted = counted

    def __call__(self, event, args):
        if event == 'open':
            path, _, flags = args
            counts = flags & WRITES
        elif event in CHANGES:
            path, counts = args[0], True
        else:
            return
        if self.counted not in (None, event):
            return
        if not counts or not str(path).startswith(self.folder):
            return
        self.count += 1
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


def _put_in_halves(backend, obj, filepath):
    with open(filepath, 'wb') as file:
        file.write(obj[: len(obj) // 2])
        file.flush()
        sys.audit('half written', str(filepath))
        file.write(obj[len(obj) // 2 :])
