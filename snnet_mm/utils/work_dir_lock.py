"""One writer at a time in a folder: one training, one test, one export."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from snnet_mm.runtime.checks import refusal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


@contextmanager
def folder_lock(folder: str | os.PathLike, key: str, doing: str) -> Iterator[None]:
    """Keep all others that take this lock out of a folder, and leave no file in it.

    Where folders cannot be locked (Windows, some network file systems) nothing is.

    Raises:
        ValueError: If another holder is alive, with the ``key`` of the folder.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            allowed = f'a folder in which no other process is {doing}'
            raise refusal(key, str(folder), allowed) from None
        except OSError:  # no locks in this file system
            pass
        yield
    finally:
        os.close(descriptor)


@contextmanager
def work_dir_lock(
    folder: str | os.PathLike, work: str = 'training', key: str = '--work-dir'
) -> Iterator[None]:
    """Keep other processes from the same work in a folder, or raise if one is at it.

    ``training.lock`` holds the id and the host of the process, and stays. The lock on
    it is the system's and ends with the process; forked workers do not have it. Where
    a file system has no locks, nothing is raised.
    """
    with Path(folder, f'{work}.lock').open('a+') as file:
        try:
            if fcntl:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            owner = file.read().strip() or 'another process'
            allowed = f'a folder without another {work}, such as that of {owner}'
            raise refusal(key, str(folder), allowed) from None
        except OSError:  # no locks in this file system
            pass
        with suppress(OSError):  # a full disk
            os.ftruncate(file.fileno(), 0)
            owner = f'process {os.getpid()} on {socket.gethostname()}\n'
            os.write(file.fileno(), owner.encode())
        yield
