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
    """Read a JSON file and say in words what is wrong with it.

    Args:
        path: The file.
        parse: Makes the result of the data; may fail on data of another form.
        what: What the file should hold.
        made_by: What writes such files.

    Raises:
        ValueError: If there is no such file, or it is damaged or holds something else.
    """
    try:
        text = Path(path).read_text(encoding='utf-8')
    except OSError as error:
        raise ValueError(
            f'{path} cannot be read as a {what}: {error.strerror}; {made_by} writes one'
        ) from None
    except UnicodeDecodeError:
        raise ValueError(f'{path} is no text; {made_by} writes a {what}') from None
    try:
        data = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(
            f'{path} is damaged: {error}; write the {what} again ({made_by})'
        ) from None
    try:
        if not isinstance(data, dict):
            raise TypeError(f'it holds a {type(data).__name__}')
        return parse(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f'{path} is no {what}, as {made_by} writes it: {type(error).__name__} '
            f'{error}'
        ) from None


def require(right: bool, name: str, value: object) -> None:
    """Refuse an entry of a file.

    Raises:
        ValueError: If it is not right.
    """
    if not right:
        raise ValueError(f'{name} is {value!r}')
