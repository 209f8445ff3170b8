"""Errors of parts that mmengine builds from a config."""

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb

KINDS = AssertionError, KeyError, TypeError, ValueError


@contextmanager
def explain_builds() -> Iterator[None]:
    """Turn errors while mmengine builds a part into a ValueError that names the part.

    Errors that name a config key already are left as they are.
    """
    try:
        yield
    except KINDS as error:
        text, frames = str(error).strip(), walk_tb(error.__traceback__)
        builds = [f for f, _ in frames if f.f_code.co_name == 'build_from_cfg']
        explained = '(config key' in text or '(option' in text
        if not builds or explained or type(error) not in KINDS:
            raise
        part = builds[-1].f_locals.get('obj_type', 'a part')
        name = getattr(part, '__name__', part)
        raise ValueError(
            f'{name} cannot be built: {type(error).__name__} {text} (config key: '
            f'{name})'
        ) from error
