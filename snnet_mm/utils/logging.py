"""Filters for the terminal output of loggers and underlying packages."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# Messages of underlying packages that a user cannot act on.
NOISE = re.compile(
    'OneDL|MultiScaleDeformable|avg_non_ignore|FileClient|LocalVisBackend|'
    'prefix is not set in metric|draw is False|is not the main process|'
    'HardDiskBackend|since its requires_grad=False|Failed to search registry|'
    'is out of (?:the )?local scope|align_corners|Loads checkpoint by'
)


class WithoutNoise:
    """A text stream that drops each ``print`` whose text matches :data:`NOISE`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._left_out = stream, False

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, unless it is noise or the newline that ends noise."""
        ends_noise = self._left_out and text == '\n'
        self._left_out = NOISE.search(text) is not None
        return 0 if ends_noise or self._left_out else self._stream.write(text)


@contextmanager
def quiet_terminal(logger: logging.Logger) -> Iterator[None]:
    """Show only warnings and errors on the terminal; log files are unchanged."""
    terminals = [h for h in logger.handlers if not isinstance(h, logging.FileHandler)]
    levels = [handler.level for handler in terminals]
    for handler in terminals:
        handler.setLevel(max(handler.level, logging.WARNING))
    try:
        yield
    finally:
        for handler, level in zip(terminals, levels, strict=True):
            handler.setLevel(level)
