"""Whether something that a config or a file gives is a number."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def is_whole(value: Any, least: int | None = None) -> bool:
    """Whether it is a whole number, no bool, and not below ``least``."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and (least is None or value >= least)


def is_number(value: Any) -> bool:
    """Whether it is a finite number and no bool."""
    real = isinstance(value, Real) and not isinstance(value, bool)
    return real and math.isfinite(value)
