"""Networks of timm; nothing but what asks for them needs it."""

from __future__ import annotations

import importlib

from torch import nn


def create_timm_model(name: str, **kwargs) -> nn.Module:
    """What ``timm.create_model`` gives.

    Args:
        name: Its name in timm.
        **kwargs: Other arguments.

    Raises:
        ImportError: If timm is missing.
        ValueError: If the network or its weights cannot be had.
    """
    try:
        # Not at the top: the package works without timm.
        timm = importlib.import_module('timm')
    except ImportError as error:
        raise ImportError(
            f'timm://{name} needs timm, which cannot be imported ({error}); '
            'install timm or name a file'
        ) from error
    try:
        return timm.create_model(name, **kwargs)
    except Exception as error:
        # Whatever timm, the hub or the network raise, there are no weights.
        raise ValueError(f'timm://{name} cannot be fetched: {error}') from error
