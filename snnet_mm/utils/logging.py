"""What loggers show on the terminal; log files are always complete."""

import logging
import warnings
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
def quiet_imports() -> Iterator[None]:
    """Hide warnings and debug messages of the mm packages while they are imported.

    mmengine's ``print_log`` prints messages of any level if it is given no logger. The
    mm packages report missing optional parts in this way, at the level DEBUG. A module
    that is imported here keeps a ``print_log`` that differs in nothing else.
    """
    import mmengine.logging  # imports torch

    original = mmengine.logging.print_log

    def print_log(msg, logger=None, level=logging.INFO) -> None:
        if logger is not None or level > logging.DEBUG:
            original(msg, logger, level)

    mmengine.logging.print_log = print_log
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', module='mm|timm|torch')
            yield
    finally:
        mmengine.logging.print_log = original


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
