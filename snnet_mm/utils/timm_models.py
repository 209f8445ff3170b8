"""Networks of timm; nothing but what asks for them needs it."""

from __future__ import annotations

import importlib

from mmengine.logging import print_log
from torch import nn

_TOLD: set[str] = set()


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
        log_licence(model)
    return model


def log_licence(model: nn.Module) -> None:
    """Log, once per model, the licence of its published weights and their images.

    Both are what timm says; where it says no licence, the origin is named.

    Args:
        model: A model of timm.
    """
    cfg = model.pretrained_cfg
    name = '.'.join(filter(None, (cfg.get('architecture'), cfg.get('tag'))))
    if name in _TOLD:
        return
    _TOLD.add(name)
    origin = cfg.get('origin_url') or 'its authors'
    licence = cfg.get('license') or f'unknown to timm; ask {origin}'
    if licence == 'dinov3-license':
        licence += ' (gated: accept it on Hugging Face before weights can be fetched)'
    mean, std = ([round(255 * x, 3) for x in cfg[key]] for key in ('mean', 'std'))
    print_log(
        f'Weights of {name}: licence {licence}; trained on images with mean {mean} and '
        f'std {std} (config key: data_preprocessor)',
        logger='current',
    )
