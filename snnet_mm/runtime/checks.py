"""Validation helpers."""

import math
from collections.abc import Collection
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


def check(ok: object, key: str, value: object, allowed: str | Collection) -> None:
    """Raise if a value of a user is wrong; see :func:`refusal`."""
    if not ok:
        raise refusal(key, value, allowed)


def refusal(
    key: str, value: object, allowed: str | Collection, misspelt: object = None
) -> ValueError:
    """Return an error that names a value, what is allowed, and where it is set.

    Args:
        key: Config key or, with leading dashes, option of a tool; several by commas.
        value: The value.
        allowed: What would be right: words, or the allowed values.
        misspelt: What to name the nearest allowed one of; by default the value.
    """
    hint, word = '', value if misspelt is None else misspelt
    if not isinstance(allowed, str):
        names = [a for a in allowed if isinstance(a, str)]
        near = get_close_matches(word, names, 1) if isinstance(word, str) else []
        hint = f'; did you mean {near[0]!r}?' if near else ''
        allowed = ', '.join(map(repr, allowed)) or 'nothing'
    name = key.rsplit('.', 1)[-1].lstrip('-')
    kind = 'option' if key.startswith('--') else 'config key'
    return ValueError(f'{name}={value!r}; allowed: {allowed}{hint} ({kind}: {key})')


def is_whole(value: Any, least: int | None = None) -> bool:
    """Return whether a value is a whole number, no bool, and not below ``least``."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and (least is None or value >= least)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and no bool."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    try:
        return real and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
