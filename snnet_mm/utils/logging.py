"""What reaches the terminal and the log file."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_warnings(logger: logging.Logger) -> Iterator[None]:
    """Let nothing below a warning through."""
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
