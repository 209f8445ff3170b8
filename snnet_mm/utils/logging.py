"""Filters for the terminal output of loggers and underlying packages."""

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

# Messages of underlying packages that a user cannot act on.
NOISE = re.compile(
    'import OneDL|MultiScaleDeformable|avg_non_ignore|FileClient|LocalVisBackend|'
    'batch augmentations are enabled|NMS is not compiled|prefix is not set in metric|'
    'draw is False|HardDiskBackend|is not the main process|'
    'since its requires_grad=False|Failed to search registry|'
    'is out of (?:the )?local scope|When align_corners=|Loads checkpoint by|'
    r'^(?:loading annotations into memory|Done \(t=|creating index|index created!)'
)


class WithoutNoise:
    """A text stream that drops each line that matches :data:`NOISE`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._left_out = stream, False

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text without its noisy lines; return its length."""
        kept = []
        for line in text.splitlines(keepends=True):
            # ``print`` writes the end of a line separately.
            ends_noise = self._left_out and line == '\n'
            noisy = NOISE.search(line) is not None
            self._left_out = noisy and not line.endswith('\n')
            kept += [] if noisy or ends_noise else [line]
        if kept:
            self._stream.write(''.join(kept))
        return len(text)


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


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Hide what the mm packages say of their optional parts when they are imported."""
    from mmengine.logging import MMLogger  # imports torch

    logger = MMLogger.get_current_instance()
    logger.addFilter(_is_no_noise)
    try:
        with redirect_stdout(WithoutNoise(sys.stdout)), warnings.catch_warnings():
            warnings.filterwarnings('ignore', module='mm|timm|torch')
            yield
    finally:
        logger.removeFilter(_is_no_noise)


def _is_no_noise(record: logging.LogRecord) -> bool:
    return NOISE.search(record.getMessage()) is None


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
