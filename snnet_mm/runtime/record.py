"""Records of the requests and files that results were made from.

Whatever skips existing results compares a record first, since a file's existence does
not tell which model or stitch wrote it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from .checks import check


def read_record(path: str | os.PathLike) -> dict:
    """Return a record, empty if there is none that can be read."""
    try:
        found = json.loads(Path(path).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def check_request(
    known: Mapping, request: Mapping, key: str, folder: str | os.PathLike, instead: str
) -> None:
    """Raise if results were made by another request, and name what differs.

    Args:
        known: The recorded request.
        request: Names and values, as in JSON, of all that decides the results.
        key: The option or config key of the folder.
        folder: The folder of the results.
        instead: What else the user can do, after "or".
    """
    other = [n for n in {**known, **request} if known.get(n) != request.get(n)]
    found, wanted = (
        ', '.join(f'{n}={values.get(n)!r}' for n in other)
        for values in (known, request)
    )
    expected = f'results with {wanted}, not with {found}, or {instead}'
    check(not other, key, str(folder), expected)


def file_facts(path: str | os.PathLike) -> list[int] | None:
    """Return the size and the modification time of a file, None if it is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]
