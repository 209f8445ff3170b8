"""Errors of parts that mmengine builds from a config."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import isfunction, signature
from traceback import extract_tb, walk_tb

from mmengine.config import Config


@contextmanager
def explain_builds(cfg: Config | None = None) -> Iterator[None]:
    """Turn errors of a part that cannot be built into a ValueError that names it.

    mmengine's own errors name a type or a setting at most. For a misspelt one, the
    closest is suggested, and if the config inherits others, how to drop their settings.
    Errors that name a config key already are left as they are.
    """
    inherits = cfg is not None and '_base_' in cfg.text
    try:
        yield
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        frames = [frame for frame, _ in walk_tb(error.__traceback__)]
        builds = [f.f_locals for f in frames if f.f_code.co_name == 'build_from_cfg']
        explained = _explained(error, builds[-1], inherits) if builds else None
        if explained is None:
            raise
        raise ValueError(explained) from error


def _explained(error: Exception, build: dict, inherits: bool) -> str | None:
    """Return the message for an error while mmengine built a part, None to keep it.

    Args:
        error: The error.
        build: Local variables of mmengine's ``build_from_cfg``.
        inherits: Whether settings may come from a config's ``_base_``.
    """
    cls, text = build.get('obj_cls'), str(error).strip()
    if isinstance(error, KeyError):
        name, registry = build.get('obj_type'), build['registry']
        part = {**(build['default_args'] or {}), **build['cfg']}
        if 'type' not in part:
            return f'{part} lacks the type of a {registry.name} (config key: type)'
        if cls is not None or not isinstance(name, str):
            return None
        near = _did_you_mean(name, {*registry.module_dict, *registry.root.module_dict})
        return (
            f'type={name!r} is invalid: expected a {registry.name} registered in '
            f'{registry.scope} or mmengine{near} (config keys: type, custom_imports)'
        )
    of = getattr(cls, '__name__', cls)
    if isinstance(error, TypeError):
        if 'argument' not in text:  # no setting, but an error inside the part
            return None
        known = _settings(cls)
        unknown = sorted(build['args'].keys() - known)
        text += ''.join(_did_you_mean(setting, known) for setting in unknown)
        if unknown and inherits:
            text += f"; _delete_=True beside type='{of}' drops what a _base_ sets"
    elif isinstance(error, AssertionError):
        text = text or (extract_tb(error.__traceback__)[-1].line or 'an assertion')
    elif type(error) is not ValueError or '(config key' in text or '(option' in text:
        return None
    return f'{of} cannot be built: {text} (config key: {of})'


def _did_you_mean(word: str, known: set[str]) -> str:
    near = get_close_matches(word, sorted(known), 1)
    return f'; did you mean {near[0]!r}?' if near else ''


def _settings(cls: type | Callable) -> set[str]:
    """Return the argument names of a function, or of a class and of its bases."""
    builders = [vars(kind).get('__init__') for kind in getattr(cls, '__mro__', ())]
    builders = [*filter(isfunction, builders)] or [cls]
    return {name for builder in builders for name in signature(builder).parameters}
