"""What loggers show on the terminal; log files are always complete."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def at_least(level: int, *filters: logging.Logger | logging.Handler) -> Iterator[None]:
    """Let only messages of a level or above through loggers or handlers."""
    levels = [each.level for each in filters]
    for each in filters:
        each.setLevel(max(each.level, level))
    try:
        yield
    finally:
        for each, old in zip(filters, levels, strict=True):
            each.setLevel(old)


def quiet_terminal(
    logger: logging.Logger, level: int = logging.WARNING
) -> AbstractContextManager[None]:
    """Show only messages of a level or above on the terminal."""
    terminals = [h for h in logger.handlers if not isinstance(h, logging.FileHandler)]
    return at_least(level, *terminals)


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
