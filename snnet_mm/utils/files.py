"""Files that are whole or absent."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place if all went well.

    Missing folders are made. After an error nothing is left behind. What was written
    and its name are on the disk, not only in its cache, when the block is left.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last, because writers tell the format by it.
    temporary = path.with_name(f'.{path.stem}.{os.getpid()}{path.suffix}')
    try:
        yield temporary
        _sync(temporary, os.O_RDONLY)
        os.replace(temporary, path)
        if hasattr(os, 'O_DIRECTORY'):
            _sync(path.parent, os.O_DIRECTORY)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: str | os.PathLike, suffix: str) -> None:
    """Remove what writers left in a folder that were killed inside :func:`atomic_path`.

    To be called while nothing is written there.

    Args:
        folder: The folder.
        suffix: Of the files, such as ``'.pth'``.
    """
    for path in Path(folder).glob(f'.*{suffix}'):
        if re.fullmatch(rf'\..+\.\d+{re.escape(suffix)}', path.name):
            path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@register_backend('snnet_atomic', force=True)
class AtomicBackend(LocalBackend):
    """mmengine's local files, but under their names only when whole."""

    def put(self, obj: bytes, filepath: str | os.PathLike) -> None:
        """Write bytes to a file."""
        with atomic_path(filepath) as temporary:
            super().put(obj, temporary)

    def put_text(
        self, obj: str, filepath: str | os.PathLike, encoding: str = 'utf-8'
    ) -> None:
        """Write text to a file."""
        with atomic_path(filepath) as temporary:
            super().put_text(obj, temporary, encoding)
