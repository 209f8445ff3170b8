"""Validation helpers."""

import math
from collections.abc import Collection
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


def check(ok: object, key: str, value: object, expected: str | Collection) -> None:
    """Raise a ValueError if a user-supplied value is wrong; see :func:`refusal`."""
    if not ok:
        raise refusal(key, value, expected)


def refusal(
    key: str, value: object, expected: str | Collection, misspelt: object = None
) -> ValueError:
    """Return an error with a value, what was expected, and the key that sets it.

    Args:
        key: Config key, tool option such as ``'--budgets'``, or argument of a function
            such as ``'argument: budgets'``. Several: comma-separated.
        value: The rejected value.
        expected: Phrase that follows "expected", or the allowed values themselves.
        misspelt: Word to suggest the nearest allowed value for. Default: ``value``.
    """
    hint, word = '', value if misspelt is None else misspelt
    if not isinstance(expected, str):
        names = [e for e in expected if isinstance(e, str)]
        near = get_close_matches(word, names, 1) if isinstance(word, str) else []
        hint = f'; did you mean {near[0]!r}?' if near else ''
        values = ', '.join(map(repr, expected)) or 'no value'
        expected = f'one of {values}' if len(expected) > 1 else values
    if ': ' not in key:
        key = f'{"option" if key.startswith("--") else "config key"}: {key}'
    name = key.rpartition(': ')[2].rpartition('.')[2].lstrip('-')
    return ValueError(f'{name}={value!r} is invalid: expected {expected}{hint} ({key})')


def is_whole(value: Any, minimum: int | None = None) -> bool:
    """Return whether a value is an integer, not a bool, and at least ``minimum``."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and (minimum is None or value >= minimum)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    try:
        return real and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
