"""JSON files that a user hands back to us."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar('T')


def read_json(
    path: str | os.PathLike, parse: Callable[[Mapping], T], what: str, made_by: str
) -> T:
    """Read a JSON file, or say in words what is wrong with it.

    Args:
        path: The file.
        parse: Makes the result of the data; may fail on data of another form.
        what: What the file should hold.
        made_by: What writes such files.
    """
    writer = f'{made_by} writes a {what}'
    try:
        data = json.loads(Path(path).read_text(encoding='utf-8'))
    except OSError as error:
        why = f'cannot be read as a {what}: {error.strerror}'
        raise ValueError(f'{path} {why}; {writer}') from None
    except (RecursionError, ValueError) as error:
        raise ValueError(f'{path} is damaged: {error}; {writer}') from None
    try:
        require(isinstance(data, dict), 'what it holds', type(data).__name__)
        return parse(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        why = f'is no {what}: {type(error).__name__} {error}'
        raise ValueError(f'{path} {why}; {writer}') from None


def require(right: bool, name: str, value: object) -> None:
    """Refuse an entry of a file unless it is right."""
    if not right:
        raise ValueError(f'{name} is {value!r}')
