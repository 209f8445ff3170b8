"""timm networks, with timm as an optional dependency, and licences of weights."""

import importlib
import logging
import sys
from collections.abc import Collection, Mapping
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from mmengine.logging import print_log
from torch import Tensor, nn

from snnet_mm.runtime.checks import check

from .distributed import first_process_first
from .timm_creation import create_with

WEIGHTS = Path(__file__).parents[1] / '.mim' / 'configs' / 'weights.yml'


def timm_init_cfg(model: str, pretrained: bool, init_cfg: dict | None) -> dict | None:
    """Return the ``init_cfg`` of a timm network, for which ``pretrained`` may stand."""
    flag = isinstance(pretrained, bool)
    expected = 'True or False; a path belongs in init_cfg'
    check(flag, 'model.pretrained, pretrained', pretrained, expected)
    if not pretrained:
        return init_cfg
    check(init_cfg is None, 'init_cfg', init_cfg, 'None with pretrained=True')
    return dict(type='Pretrained', checkpoint=f'timm://{model}')


def check_model_args(given: Mapping | None, taken: Collection[str]) -> dict:
    """Return further arguments of a network; raise if the anchor sets one itself."""
    right = given is None or isinstance(given, Mapping)
    right = right and not {*taken} & {*(given or {})}
    check(right, 'model_args', given, f'a dict without {sorted(taken)}')
    return dict(given or {})


def create_timm_model(name: str, **kwargs) -> nn.Module:
    """Create a timm model, and log the licence of pretrained weights.

    Any arguments of its constructor can be given.
    """
    timm = _import_timm(name)
    pretrained = kwargs.get('pretrained', False)
    try:
        with first_process_first() if pretrained else nullcontext():
            model = create_with(timm, name, kwargs)
    except Exception as error:
        # timm, the hub and the network raise errors of many types.
        failed = 'fetched' if pretrained else 'built'
        raise ValueError(f'timm://{name} cannot be {failed}: {error}') from error
    if pretrained:
        log_timm_licence(model)
    return model


def convert_timm_weights(
    network: nn.Module, weights: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Rename and resample weights for a network, as timm does on loading."""
    module = sys.modules[type(network).__module__]
    convert = getattr(module, 'checkpoint_filter_fn', None)
    try:
        return dict(convert(dict(weights), network) if convert else weights)
    except Exception as error:
        why = f'{type(error).__name__} {error}'.splitlines()[0]
        raise ValueError(f'timm cannot convert it: {why}') from error


def has_fixed_size(name: str) -> bool:
    """Return whether a timm network is built for one image size."""
    cfg = _import_timm(name).models.get_pretrained_cfg(name.split('.')[0])
    return getattr(cfg, 'fixed_input_size', False)


def _import_timm(name: str) -> ModuleType:
    try:
        # Imported here, because the package works without timm.
        return importlib.import_module('timm')
    except ImportError as error:
        raise ImportError(
            f'timm://{name} needs timm ({error}): install timm or name a file'
        ) from error


def log_timm_licence(model: nn.Module) -> None:
    """Log the licence of a model's weights and the mean and std of their images."""
    cfg = model.pretrained_cfg
    name = '.'.join(filter(None, (cfg.get('architecture'), cfg.get('tag'))))
    licence = cfg.get('license') or 'unknown to timm'
    if licence == 'dinov3-license':
        licence += ' (gated: accept it on Hugging Face before weights can be fetched)'
    mean, std = ([round(255 * x, 3) for x in cfg[key]] for key in ('mean', 'std'))
    _log_once(
        f'Weights of {name}: licence {licence}; trained on images with mean {mean} and '
        f'std {std} (config key: data_preprocessor)'
    )


def origin_of(config: Mapping[str, Any]) -> str | None:
    """Return the checkpoint that initialises a network config, if any."""
    if config.get('pretrained') is True:
        return f'timm://{config["model"]}'
    listed = config.get('init_cfg') or config.get('pretrained') or ()
    listed = listed if isinstance(listed, list | tuple) else [listed]
    found = [i if isinstance(i, str) else i.get('checkpoint') for i in listed]
    return next(filter(None, found), None)


def licence_of(checkpoint: str | None) -> str | None:
    """Look up the licence of published weights in timm or ``configs/weights.yml``.

    Args:
        checkpoint: A ``timm://`` name, or a path or URL whose file name is in the list.
    """
    scheme, _, name = (checkpoint or '').rpartition('://')
    if scheme == 'timm':
        with suppress(ImportError):
            found = _import_timm(name).models.get_pretrained_cfg(name)
            return getattr(found, 'license', None)
    listed = yaml.safe_load(WEIGHTS.read_text()) if WEIGHTS.exists() else {}
    return listed.get(Path(name).name, {}).get('licence')


@cache
def _log_once(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
