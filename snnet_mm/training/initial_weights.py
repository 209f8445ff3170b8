"""Networks that start from random weights, though pretrained ones are named or needed.

mmengine loads the weights that fit and logs the names of all others.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import deepcopy

import torch
from mmengine.model import BaseModule
from mmengine.runner import Runner
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone, unwrapped


def check_initial_weights(
    runner: Runner, loaded: Mapping[str, Tensor] | None
) -> Iterator[str]:
    """Check that pretrained weights fill the networks of a model; yield warnings.

    Args:
        runner: The runner, with loaded weights.
        loaded: Weights of the checkpoint ``load_from``, if any.

    Raises:
        ValueError: If files are named that fill no weight of any network.
    """
    model = unwrapped(runner.model)
    networks, stitched = _networks(model)
    if not networks or runner.iter:
        return
    inside = tuple(networks.values())
    sources = [] if loaded is None else [(runner.cfg.get('load_from'), '', loaded)]
    sources += _pretrained(model, inside)
    filled = set()
    for _, path, weights in sources:
        filled |= _filled(model.get_submodule(path), path, weights, inside)
    random = [
        name
        for name, inner in networks.items()
        if not any(key.startswith(inner) for key in filled)
    ]
    if not random or not (stitched or sources):
        return
    said = f'These anchors start from random weights: {", ".join(random)}'
    said = said if stitched else 'The backbone starts from random weights'
    why = 'no checkpoint was loaded, and no init_cfg has the type Pretrained'
    if sources:
        files = ', '.join(str(file) for file, *_ in sources)
        names = [k for k in model.state_dict() if k.startswith(networks[random[0]])]
        why = f'{files} has no weight such as {names[0]}'
    text = f'{said}. {why} (config keys: load_from, init_cfg of model and anchors)'
    if sources and len(random) == len(networks):
        raise ValueError(text)
    yield text


def _networks(model: nn.Module) -> tuple[dict[str, str], bool]:
    """Return prefixes of weights by network, and whether the networks are stitched.

    They are the anchors of a stitched backbone, else the backbone itself.
    """
    for path, module in model.named_modules():
        if isinstance(module, StitchedBackbone):
            inner = f'{path}.anchors' if path else 'anchors'
            names = enumerate(module.space.anchor_names)
            return {name: f'{inner}.{i}.' for i, name in names}, True
    alone = isinstance(getattr(model, 'backbone', None), nn.Module)
    return {'backbone': 'backbone.'} if alone else {}, False


def _pretrained(
    model: nn.Module, inside: tuple[str, ...]
) -> Iterator[tuple[str, str, Mapping | None]]:
    """Yield file, module and weights in the file of each init_cfg of type Pretrained.

    Modules without any weight under the prefixes ``inside`` are left out. Those that
    load a file themselves, such as anchors, raise if it does not fit: no weights.
    """
    for path, module in model.named_modules():
        init = getattr(module, 'init_cfg', None) or ()
        parts = [init] if isinstance(init, Mapping) else init
        parts = [part for part in parts if part.get('type') == 'Pretrained']
        if isinstance(name := getattr(module, 'pretrained', None), str):
            parts = [dict(checkpoint=name)]  # of language models
        holds = not path or any(inner.startswith(f'{path}.') for inner in inside)
        for part in parts if holds or f'{path}.'.startswith(inside) else ():
            weights, prefix = None, part.get('prefix') or ''
            if getattr(type(module), 'init_weights', 0) is BaseModule.init_weights:
                file = CheckpointLoader.load_checkpoint(part['checkpoint'], 'cpu')
                prefix += '.' if prefix and not prefix.endswith('.') else ''
                weights = {
                    key.removeprefix(prefix): value
                    for key, value in as_loaded(file).items()
                    if key.startswith(prefix)
                }
            yield part['checkpoint'], path, weights


def as_loaded(checkpoint: Mapping) -> dict[str, object]:
    """Return the weights in a checkpoint as mmengine reads and names them."""
    weights = checkpoint.get('state_dict', checkpoint)
    return {str(key).removeprefix('module.'): value for key, value in weights.items()}


def _filled(
    module: nn.Module, path: str, weights: Mapping | None, inside: tuple[str, ...]
) -> set[str]:
    """Return names in the model of the weights of a module that others fill.

    All, if the module loads its ``weights`` itself.
    """
    own, inner = module.state_dict(), f'{path}.' if path else ''
    fitting = {
        inner + key
        for key, value in own.items()
        if weights is None
        or getattr(weights.get(key), 'shape', None) == getattr(value, 'shape', ())
    }
    if any(key.startswith(inside) for key in fitting):
        return fitting
    # Hooks of modules may rename weights: load them into a copy without any.
    empty = deepcopy(module)
    for parameter in empty.parameters():
        parameter.data.fill_(torch.nan)
    with suppress(RuntimeError):  # raised for wrong shapes, after the right ones loaded
        empty.load_state_dict(dict(weights), strict=False)
    return {inner + k for k, p in empty.named_parameters() if not p.isnan().all()}
