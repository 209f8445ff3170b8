"""Locks for a single writer per folder: one training, one test, one export.

On file systems without locks, nothing is locked.
"""

import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from snnet_mm.runtime.checks import check


@contextmanager
def folder_lock(folder: str | os.PathLike, key: str, doing: str) -> Iterator[None]:
    """Hold an exclusive lock on a folder without creating a file in it.

    Raises:
        ValueError: If the lock is already held; the message names the folder's ``key``.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        expected = f'a folder in which no other process is {doing}'
        check(_lock(fcntl.flock, descriptor), key, str(folder), expected)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def work_dir_lock(
    folder: str | os.PathLike, work: str = 'training', key: str = '--work-dir'
) -> Iterator[None]:
    """Lock a folder for one kind of work, or raise if another process holds the lock.

    The lock file, such as ``training.lock``, contains the id and host of the process
    and is not removed. The operating system releases the lock when the process ends;
    forked workers do not inherit it.
    """
    # Closing any other descriptor of the file would release the lock.
    with Path(folder, f'{work}.lock').open('a+') as file:
        locked = _lock(fcntl.lockf, file.fileno())
        file.seek(0)
        owner = file.read().strip()
        expected = f'a folder without another {work}, such as that of {owner}'
        check(locked, key, str(folder), expected)
        with suppress(OSError):  # a full disk
            os.ftruncate(file.fileno(), 0)
            owner = f'process {os.getpid()} on {socket.gethostname()}\n'
            os.write(file.fileno(), owner.encode())
        yield


def _lock(lock: Callable, descriptor: int) -> bool:
    """Lock a file; return False if another process holds the lock."""
    try:
        lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # no locks in this file system
        pass
    return True
