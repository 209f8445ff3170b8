"""Locks for a single writer per folder: one training, one test, one export."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from snnet_mm.runtime.checks import refusal


@contextmanager
def work_dir_lock(
    folder: str | os.PathLike, work: str = 'training', key: str = '--work-dir'
) -> Iterator[None]:
    """Lock a folder for one kind of work, or raise if another process holds the lock.

    The lock is a file such as ``training.lock``, which is removed at the end. The
    operating system releases it when the process ends, also if it is killed; forked
    workers do not inherit it. Without file system locks, nothing is raised.

    Raises:
        ValueError: If the lock is held; the message names the folder's ``key``.
    """
    from filelock import FileLock, Timeout  # which serving does not need

    lock = FileLock(Path(folder, f'{work}.lock'))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        expected = f'a folder without another {work} (which locks {lock.lock_file})'
        raise refusal(key, str(folder), expected) from None
    except OSError:  # no locks in this file system
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()
