"""What loggers show on the terminal; log files are always complete."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stdout,
)

from .replacing import replaced


def plural(number: int, word: str) -> str:
    """Return a number with its word, such as ``'1 stitch'`` and ``'2 stitches'``."""
    ending = 'es' if word.endswith(('s', 'x', 'ch', 'sh')) else 's'
    return f'{number} {word}{ending * (number != 1)}'


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
def quiet_coco() -> Iterator[None]:
    """Hide the progress that pycocotools prints, if it is installed."""
    try:
        from pycocotools import coco, cocoeval
    except ImportError:
        yield
        return
    silent = dict(print=lambda *args, **kwargs: None)
    with replaced(vars(coco), silent), replaced(vars(cocoeval), silent):
        yield


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Hide what the mm packages print and log while they are imported.

    They report missing optional parts, such as operators for CUDA that no model of this
    package runs, by printing and by warnings of mmengine's logger.
    """
    from mmengine.logging import MMLogger  # imports torch

    logger = MMLogger.get_current_instance()
    with ExitStack() as stack:
        stack.enter_context(quiet_terminal(logger, logging.ERROR))
        stack.enter_context(redirect_stdout(None))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings('ignore', module='mm|timm|torch')
        yield
