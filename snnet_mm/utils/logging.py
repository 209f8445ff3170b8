"""What loggers show on the terminal; log files are always complete."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_terminal(
    logger: logging.Logger, level: int = logging.WARNING
) -> Iterator[None]:
    """Show only messages of a level or above on the terminal."""
    terminals = [h for h in logger.handlers if not isinstance(h, logging.FileHandler)]
    levels = [handler.level for handler in terminals]
    for handler in terminals:
        handler.setLevel(max(handler.level, level))
    try:
        yield
    finally:
        for handler, old in zip(terminals, levels, strict=True):
            handler.setLevel(old)


@contextmanager
def errors_only(name: str) -> Iterator[None]:
    """Let only the errors of a package's logger and its children through."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
