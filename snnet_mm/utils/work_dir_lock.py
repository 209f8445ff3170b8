"""Locks for a single writer per folder: one training, one test, one export."""

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
    """Hold an exclusive lock on a folder without creating a file in it.

    If folders cannot be locked (Windows, some network file systems), this is a no-op.

    Raises:
        ValueError: If the lock is already held; the message names the folder's ``key``.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            expected = f'a folder in which no other process is {doing}'
            raise refusal(key, str(folder), expected) from None
        except OSError:  # no locks in this file system
            pass
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
    forked workers do not inherit it. Without file system locks, nothing is raised.
    """
    with Path(folder, f'{work}.lock').open('a+') as file:
        try:
            if fcntl:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            file.seek(0)
            owner = file.read().strip() or 'another process'
            expected = f'a folder without another {work}, such as that of {owner}'
            raise refusal(key, str(folder), expected) from None
        except OSError:  # no locks in this file system
            pass
        with suppress(OSError):  # a full disk
            os.ftruncate(file.fileno(), 0)
            owner = f'process {os.getpid()} on {socket.gethostname()}\n'
            os.write(file.fileno(), owner.encode())
        yield
