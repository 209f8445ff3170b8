"""Networks of timm; nothing but what asks for them needs it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType

from torch import Tensor, nn

from .checks import check
from .licences import log_timm_licence


def create_timm_model(name: str, **kwargs) -> nn.Module:
    """Return what ``timm.create_model`` gives; the licence of weights is logged."""
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


def convert_timm_weights(
    network: nn.Module, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return weights as timm would load them: renamed and resampled for a network."""
    module = sys.modules[type(network).__module__]
    convert = getattr(module, 'checkpoint_filter_fn', None)
    try:
        return dict(convert(dict(weights), network) if convert else weights)
    except Exception as error:
        why = f'{type(error).__name__} {error}'.splitlines()[0]
        raise ValueError(f'timm cannot convert it: {why}') from error


def timm_family(name: str, families: Iterable[str]) -> tuple[str, bool]:
    """Return a network's module in timm, and whether it is built for a size of images.

    The module is one of ``families``.
    """
    models, name = _import_timm(name).models, name.split('.')[0]
    found = [f for f in families if models.is_model_in_modules(name, [f])]
    kinds = f'networks of the families {sorted(families)} of timm'
    check(found, 'model', name, kinds)
    return found[0], models.get_pretrained_cfg(name).fixed_input_size


def _import_timm(name: str) -> ModuleType:
    try:
        # Not at the top: the package works without timm.
        return importlib.import_module('timm')
    except ImportError as error:
        raise ImportError(
            f'timm://{name} needs timm, which cannot be imported ({error}); '
            'install timm or name a file'
        ) from error
