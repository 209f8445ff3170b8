"""Networks of timm; nothing but what asks for them needs it."""

from __future__ import annotations

import importlib

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
    try:
        # Not at the top: the package works without timm.
        timm = importlib.import_module('timm')
    except ImportError as error:
        raise ImportError(
            f'timm://{name} needs timm, which cannot be imported ({error}); '
            'install timm or name a file'
        ) from error
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
