"""One training at a time in a work directory."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from snnet_mm.runtime.checks import refusal

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

NAME = 'training.lock'


@contextmanager
def work_dir_lock(folder: str | os.PathLike) -> Iterator[None]:
    """Refuse a folder in which another process trains, and keep others out.

    ``training.lock`` holds the id and the host of the process. The lock on the file is
    the system's and ends with the process, so that a file which a killed one has left
    is taken over; forked workers do not have it. Where a file system has no locks,
    nothing is refused.
    """
    path, file = Path(folder, NAME), None
    while fcntl and file is None:
        file = _try(path)
    try:
        yield
    finally:
        if file is not None:
            path.unlink(missing_ok=True)  # before another process may have the lock
            file.close()


def _try(path: Path) -> TextIO | None:
    """Return the locked file, or None if its owner has removed it meanwhile."""
    file = path.open('a+')
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file.close()
    except (BlockingIOError, PermissionError):
        file.seek(0)
        owner = file.read().strip() or 'another process'
        file.close()
        allowed = f'a folder in which nothing else trains; {owner} does'
        raise refusal('--work-dir', str(path.parent), allowed) from None
    except FileNotFoundError:
        return file.close()
    except OSError:  # no locks in this file system
        return file
    with suppress(OSError):
        file.truncate(0)
        file.write(f'process {os.getpid()} on {socket.gethostname()}\n')
        file.flush()
    return file
