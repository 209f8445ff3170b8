"""JSON files that a user hands back to us."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
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
        require(isinstance(data, dict), 'what it holds', data, 'an object')
        return parse(data)
    except KeyError as error:
        why = f'{error} is missing'
    except ValueError as error:
        why = str(error)
    except (AttributeError, TypeError) as error:
        why = f'{type(error).__name__} {error}'
    raise ValueError(f'{path} is no {what}: {why}; {writer}')


def require(right: object, name: str, value: object, allowed: str | Collection) -> None:
    """Refuse an entry of a file unless it is right."""
    if not right:
        raise ValueError(f'{name} is {value!r}; allowed: {allowed}')
