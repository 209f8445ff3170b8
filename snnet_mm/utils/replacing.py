"""Attributes and globals that are replaced for a while."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any


@contextmanager
def replaced(
    names: MutableMapping[str, Any], values: MutableMapping[str, Any]
) -> Iterator[None]:
    """Replace values of a mapping, such as ``vars(module)``; restore them at the end.

    Examples:
        >>> with replaced(vars(head), dict(predict=lambda *_: [])):
        ...     detector.predict(images, samples)
    """
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        for name in values:
            if name in before:
                names[name] = before[name]
            else:
                del names[name]


def with_globals(owner: object, name: str, values: dict[str, Any]) -> MethodType:
    """Return a method of an object that sees other global names.

    Neither the module of the method nor other objects of its class are changed.
    """
    method = getattr(type(owner), name)
    scope = {**method.__globals__, **values}
    about = method.__code__, scope, name, method.__defaults__, method.__closure__
    function = FunctionType(*about)
    function.__kwdefaults__ = method.__kwdefaults__
    return MethodType(function, owner)
