"""Registration of our classes, with errors that name unknown settings and types."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from traceback import extract_tb, walk_tb

from mmengine import registry as mmengine_registries
from mmengine.registry import Registry

from snnet_mm.runtime.checks import refusal

VARIADIC = Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD
MISSING_TYPE = re.compile(r'(\S+) is not in the (\w+)::(.+?) registry')


def register(
    registry: Registry, name: str | None = None, passes_on: bool = False
) -> Callable[[type], type]:
    """Register a class that raises for unknown settings.

    In every tool that builds the class, a misspelt or unknown config key raises a
    ValueError with the key, its value and the closest setting, or how to drop a setting
    of another class that the config inherits. If a class ``passes_on`` its ``**kwargs``
    to a class that is no base, that class checks them.
    """

    def decorate(cls: type) -> type:
        init, allowed = cls.__init__, _settings(cls)
        arguments = signature(init)

        @wraps(init)
        def checked_init(self: object, *args, **kwargs) -> None:
            of = type(self).__name__
            for key in [] if passes_on else sorted(kwargs.keys() - allowed):
                raise _unknown(of, key, kwargs[key], allowed)
            try:
                arguments.bind(self, *args, **kwargs)
            except TypeError as error:
                raise ValueError(f'{of}: {error} (config key: {of})') from None
            init(self, *args, **kwargs)

        cls.__init__ = checked_init
        return registry.register_module(name, module=cls)

    return decorate


def _unknown(of: str, key: str, value: object, allowed: set[str]) -> ValueError:
    """Return the error for an unknown setting of a class."""
    if key == 'pretrained':
        way = 'None (pretrained=None in model), as mmsegmentation passes it on to the '
        way += f'backbone, and {of} has no such setting: init_cfg of each anchor, with '
        way += "type='Pretrained', names its weights"
        return refusal('model.pretrained', value, way)
    if get_close_matches(key, allowed, 1):
        return refusal(f'{of}.{key}', value, sorted(allowed), misspelt=key)
    known = ', '.join(map(repr, sorted(allowed)))
    way = f"{known}; _delete_=True beside type='{of}' drops what a _base_ config sets"
    return refusal(f'{of}.{key}', value, way)


def _settings(cls: type) -> set[str]:
    """Return the argument names of a class and of bases that receive its kwargs."""
    names: set[str] = set()
    for base in cls.__mro__:
        if '__init__' in vars(base):
            _, *parameters = signature(base.__init__).parameters.values()
            kinds = {p.name: p.kind for p in parameters}
            names |= {name for name, kind in kinds.items() if kind not in VARIADIC}
            if Parameter.VAR_KEYWORD not in kinds.values():
                break
    return names


@contextmanager
def suggesting_types() -> Iterator[None]:
    """Suggest the closest registered type if mmengine does not find one.

    If an assertion in the constructor of an mm class fails, raise a ValueError with the
    class and its settings in the assertion.
    """
    try:
        yield
    except AssertionError as error:
        if (refused := _refused_settings(error)) is None:
            raise
        raise refused from error
    except KeyError as error:
        found = MISSING_TYPE.match(str(error.args[0]))
        if not found:
            raise
        wrong, scope, name = found.groups()
        types: set[str] = set()
        for root in vars(mmengine_registries).values():
            if isinstance(root, Registry):
                child = root.children.get(scope, root)
                if name in (root.name, child.name):
                    types |= {*root.module_dict, *child.module_dict}
        near = get_close_matches(wrong, sorted(types), 1)
        hint = f'; did you mean {near[0]!r}?' if near else ''
        raise ValueError(
            f'type={wrong!r}; allowed: what is registered as a {name} in {scope} or '
            f'mmengine{hint} (config keys: type, custom_imports)'
        ) from error


def _refused_settings(error: AssertionError) -> ValueError | None:
    """Return the error for an assertion in a constructor, or None for others."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    builds = (f.f_locals for f in frames if f.f_code.co_name == 'build_from_cfg')
    kinds = [variables['obj_cls'] for variables in builds if 'obj_cls' in variables]
    if not kinds:
        return None
    line = extract_tb(error.__traceback__)[-1].line or ''
    given = frames[-1].f_locals.items()
    named = [f'{k}={v!r}' for k, v in given if k in re.findall(r'\w+', line)]
    settings = ', '.join(text for text in named if not text.startswith('self='))
    of = kinds[-1].__name__
    why = str(error).strip() or line.removeprefix('assert ')
    return ValueError(
        f'{of} refuses {settings or "its settings"}: {why} (config key: {of})'
    )
