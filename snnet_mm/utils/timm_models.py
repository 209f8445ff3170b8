"""Networks of timm; nothing but what asks for them needs it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType

from torch import nn

from .licences import log_timm_licence


def create_timm_model(name: str, **kwargs) -> nn.Module:
    """What ``timm.create_model`` gives.

    The licence of fetched weights is logged.

    Args:
        name: Its name in timm.
        **kwargs: Other arguments.

    Raises:
        ImportError: If timm is missing.
        ValueError: If the network cannot be built, or its weights cannot be had.
    """
    timm = _import_timm(name)
    pretrained = kwargs.get('pretrained', False)
    try:
        model = timm.create_model(name, **kwargs)
    except Exception as error:
        # Whatever timm, the hub or the network raise, there are no weights.
        failed = 'fetched' if pretrained else 'built'
        raise ValueError(f'timm://{name} cannot be {failed}: {error}') from error
    if pretrained:
        log_timm_licence(model)
    return model


def timm_family(name: str, families: Iterable[str]) -> str:
    """The module of timm that a network is in, one of ``families``.

    Raises:
        ImportError: If timm is missing.
        ValueError: If timm has no such network, or it is of another family.
    """
    models = _import_timm(name).models
    name = name.split('.')[0]
    found = [f for f in families if models.is_model_in_modules(name, [f])]
    if not found:
        known = 'no network of timm' if not models.is_model(name) else 'of another kind'
        raise ValueError(
            f'{name} is {known}; allowed are networks of the families '
            f'{sorted(families)} of timm (config key: model)'
        )
    return found[0]


def _import_timm(name: str) -> ModuleType:
    try:
        # Not at the top: the package works without timm.
        return importlib.import_module('timm')
    except ImportError as error:
        raise ImportError(
            f'timm://{name} needs timm, which cannot be imported ({error}); '
            'install timm or name a file'
        ) from error
