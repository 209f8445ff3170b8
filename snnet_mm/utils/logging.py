"""Control of what loggers and the packages below print."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

# Messages of the packages below, of which a user of them can change nothing.
NOISE = re.compile(
    'OneDL|MultiScaleDeformable|avg_non_ignore|FileClient|LocalVisBackend|'
    'prefix is not set in metric|draw is False|is not the main process|'
    'HardDiskBackend|since its requires_grad=False|Failed to search registry|'
    'is out of (?:the )?local scope|align_corners|Loads checkpoint by'
)


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
