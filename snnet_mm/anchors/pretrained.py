"""Loading published weights into anchors, heads and teachers."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from mmengine.logging import print_log
from torch import Tensor, nn

from snnet_mm.utils import check, check_file
from snnet_mm.utils.checkpoint_guard import TO_TRUST
from snnet_mm.utils.checkpoints import (
    STATE_DICTS,
    UntrustedCheckpointError,
    load_url,
    load_weights_only,
    weights_of,
)
from snnet_mm.utils.timm_models import create_timm_model

Weights = Mapping[str, Tensor]
# Named in errors about files that are missing.
SOURCES = 'downloads: tools/get_weights.py; sources: docs/how_to/anchors.md#weights'
# Names of registers: of ours and timm, of DINOv2's authors, of DINOv3's.
REGISTERS = 'reg_token', 'register_tokens', 'storage_tokens'

# Updates and adapters start as no-ops; old files lack the counters of batch norms.
_OPTIONAL = re.compile(r'\.lora_[AB]$|\.adapter\.|num_batches_tracked$')


def pretrained_options(
    init_cfg: Mapping | Sequence[Mapping] | None, *allowed: str
) -> dict | None:
    """Return the options of an ``init_cfg`` of type Pretrained, else None."""
    parts = [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg or []
    if all(part.get('type') != 'Pretrained' for part in parts):
        return None
    check(len(parts) == 1, 'init_cfg', init_cfg, 'a single initialiser, Pretrained')
    (init_cfg,) = parts
    options = {k: v for k, v in init_cfg.items() if k != 'type'}
    known = {'checkpoint'} <= set(options) <= {'checkpoint', 'prefix', *allowed}
    expected = f'a dict with checkpoint and, optionally, {("prefix", *allowed)}'
    check(known, 'init_cfg', options, expected)
    return options


def load_into(
    module: nn.Module,
    checkpoint: str,
    key: str,
    prefix: str = '',
    adapt: Callable[[Weights], Weights] = dict,
    strict: str = '',
) -> None:
    """Load published weights, and log missing and unexpected keys.

    Raises on mismatches that mmengine's loader skips, with the module unchanged.

    Args:
        module: Module to load into.
        checkpoint: File, URL or ``timm://`` name.
        key: Config key of the checkpoint, for error messages.
        prefix: Prefix of the module's keys in the checkpoint. Default: none.
        adapt: Function that renames and resamples weights. Default: none.
        strict: Regex of keys that must be in both or in neither. Default: all.
    """
    check_file(checkpoint, f'config key: {key}; {SOURCES}')
    own = module.state_dict()
    try:
        loaded = select_prefix(read_weights(checkpoint), prefix)
        weights = adapt(loaded)
        missing = [k for k in own if k not in weights and not _OPTIONAL.search(k)]
        left = [k for k in weights if k not in own]
        for verb, names in (('lacks', missing), ('has', left)):
            wrong = [k for k in names if re.match(strict, k) or '.lora_' in k]
            if wrong:
                raise ValueError(
                    f'it {verb} {wrong[0]} and {len(wrong) - 1} others, unlike this '
                    f'{type(module).__name__} with {list(own)[:2]}; its first keys are '
                    f'{list(loaded)[:4]}'
                )
        check_shapes(weights, own)
    except UntrustedCheckpointError as error:
        key = f'config key: {key}'
        raise UntrustedCheckpointError(f'{error}; {TO_TRUST} ({key})') from None
    except ValueError as error:
        raise ValueError(
            f'checkpoint {checkpoint} cannot be used: {error} (config key: {key})'
        ) from error
    module.load_state_dict(weights, strict=False)
    for what, names in (('missing', missing), ('unexpected', left)):
        if names:
            text = f'{checkpoint}: {what} keys {names}'
            print_log(text, logger='current', level=logging.WARNING)


def check_registers(weights: Weights, number: int, key: str) -> None:
    """Raise if weights have another number of registers; weights without may get new.

    Args:
        weights: Weights with names of ours, timm or the authors.
        number: Number of registers of the network.
        key: Config key of that number.
    """
    named = [weights[name] for name in REGISTERS if name in weights]
    found = named[0].shape[1] if named else number
    check(found == number, key, number, f'{found}, the registers of the weights')


def check_shapes(weights: Weights, own: Weights) -> None:
    """Raise if the shape of a weight differs from the module's."""
    for key in [k for k in weights if k in own]:
        shapes = tuple(weights[key].shape), tuple(own[key].shape)
        if shapes[0] != shapes[1]:
            raise ValueError(f'{key} has shape {shapes[0]}, expected {shapes[1]}')


def read_weights(checkpoint: str) -> dict[str, Tensor]:
    """Return the state dict of a file, URL or timm model."""
    scheme, separator, name = checkpoint.partition('://')
    if not separator:
        loaded = load_weights_only(checkpoint)
    elif scheme in ('http', 'https'):
        loaded = load_url(checkpoint)
    elif scheme == 'timm':
        loaded = create_timm_model(name, pretrained=True).state_dict()
    else:
        raise ValueError('expected a path, or timm://, http:// or https://')
    weights = {k: v for k, v in weights_of(loaded).items() if isinstance(v, Tensor)}
    if not weights:
        raise ValueError(
            f'no state dict found at its top or under {STATE_DICTS}, only '
            f'{list(loaded)[:5]}'
        )
    return weights


def rename(key: str, rules: Iterable[tuple]) -> str:
    """Apply all regex substitutions to a key, in order."""
    for pattern, replacement in rules:
        key = re.sub(pattern, replacement, key)
    return key


def select_prefix(weights: Weights, prefix: str) -> dict[str, Tensor]:
    """Return the weights under a prefix, with the prefix removed."""
    if prefix and not prefix.endswith('.'):
        prefix += '.'
    selected = {
        k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)
    }
    check(selected, 'init_cfg.prefix', prefix, {k.split('.')[0] for k in weights})
    return selected
