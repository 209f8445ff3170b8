"""Control of what loggers print."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_terminal(logger: logging.Logger) -> Iterator[None]:
    """Let only warnings through to the terminal; files get everything."""
    terminals = [h for h in logger.handlers if not isinstance(h, logging.FileHandler)]
    levels = [handler.level for handler in terminals]
    for handler in terminals:
        handler.setLevel(max(handler.level, logging.WARNING))
    try:
        yield
    finally:
        for handler, level in zip(terminals, levels, strict=True):
            handler.setLevel(level)
