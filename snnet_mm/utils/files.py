"""Atomic file writes, and validation of JSON files passed by a user."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

TORCH_WRITERS = 'inline_container', 'PytorchStreamWriter'
T = TypeVar('T')


class UnwritableError(OSError, ValueError):
    """Raised if a file or folder cannot be written; the message states the reason."""


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, and rename it to ``path`` on success.

    Missing folders are created, and an error leaves no temporary file. On success, the
    file and its directory entry are synced to disk.

    Raises:
        UnwritableError: If the operating system reports an error.
    """
    path = Path(path)
    # The suffix stays last, because writers infer the format from it.
    temporary = path.with_name(f'.{path.stem}.{os.getpid()}{path.suffix}')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _sync(temporary, os.O_RDONLY)
        os.replace(temporary, path)
        if hasattr(os, 'O_DIRECTORY'):
            _sync(path.parent, os.O_DIRECTORY)
    except (OSError, RuntimeError) as error:
        # torch.save raises a RuntimeError if a disk is full.
        of_torch = any(word in str(error) for word in TORCH_WRITERS)
        if isinstance(error, RuntimeError) and not of_torch:
            raise
        raise UnwritableError(
            f'{path} cannot be written: {error} (options: --work-dir, --out; config '
            'key: work_dir)'
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_writable(folder: str | os.PathLike, options: str) -> Path:
    """Create a folder if missing; if it is not writable, raise and name ``options``."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UnwritableError(
            f'the folder {folder} cannot be written to: {error.strerror} ({options})'
        ) from error
    return folder


def remove_leftovers(folder: str | os.PathLike, *names: str) -> None:
    """Remove temporary files of writers killed inside :func:`atomic_path`.

    ``names`` are patterns of the final file names, such as ``'iter_*.pth'``.
    """
    for name in map(Path, names):
        for path in Path(folder).glob(f'.{name.stem}.[0-9]*{name.suffix}'):
            path.unlink(missing_ok=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(
    path: str | os.PathLike, parse: Callable[[Mapping], T], what: str, made_by: str
) -> T:
    """Read a JSON file passed by a user; a ValueError explains what is wrong with it.

    ``parse`` converts the data and may raise on invalid data; ``what`` is the kind of
    file, ``made_by`` the tool that writes such files.
    """
    try:
        data = json.loads(Path(path).read_text(encoding='utf-8'))
        require(isinstance(data, dict), 'its content', data, 'an object')
        return parse(data)
    except KeyError as error:
        why = f'{error} is missing'
    except (AttributeError, OSError, RecursionError, TypeError, ValueError) as error:
        why = str(error)
    raise ValueError(f'{path} is not a {what}: {why}; {made_by} writes a {what}')


def require(right: object, name: str, value: object, expected: str) -> None:
    """Raise if an entry of a file is invalid."""
    if not right:
        raise ValueError(f'{name} is {value!r}; expected {expected}')


def write_json(path: str | os.PathLike, data: Mapping) -> None:
    """Write a JSON file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1))


def digest(parts: Iterable[str | bytes | memoryview]) -> str:
    """Return a short digest of a sequence of strings or bytes."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part.encode() if isinstance(part, str) else part)
        found.update(b'\0')
    return found.hexdigest()[:16]


def link_latest(file: Path, folder: str | os.PathLike) -> None:
    """Symlink a file into a folder above its own, if possible, as a stable path.

    A file of that name that is not a link is kept; it may be ``file`` itself.
    """
    link, temporary = Path(folder, file.name), Path(folder, f'.{file.name}.link')
    if link.exists() and not link.is_symlink():
        return
    with suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(file, folder))
        os.replace(temporary, link)
