"""From which checkpoint a training goes on, and whether its weights fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from logging import Logger
from pathlib import Path
from types import NoneType

from mmengine.logging import print_log
from torch import Tensor, nn

from snnet_mm.evaluation.parts import unwrapped
from snnet_mm.models import StitchedBackbone
from snnet_mm.models.backbones.space_record import (
    SPACE_RECORD,
    check_space_of_weights,
)
from snnet_mm.utils import UntrustedCheckpointError, load_weights_only

OPTIONS = 'config key: load_from; of tools/test.py: the argument checkpoint'
# What changes the outputs of weights that fit a model without it.
ADDED = {
    r'(^|\.)stitch_biases\.': 'backbone.plugins',
    r'(^|\.)blocks\..*\.lora_': 'lora',
}


def find_resumable(
    work_dir: str | os.PathLike, folder: str | os.PathLike, names: str, logger: Logger
) -> str | None:
    """The checkpoint that ``last_checkpoint`` names, or else the newest readable one.

    Whether a checkpoint is trusted is not asked here; nothing in it is run.

    Args:
        work_dir: Where ``last_checkpoint`` is.
        folder: Where the checkpoints are.
        names: Their names, such as ``'iter_{}.pth'``.
        logger: Is told what was found.

    Returns:
        The path, or None if there is no readable checkpoint and none was named.

    Raises:
        ValueError: If one was named and neither it nor another can be read.
    """
    note = Path(work_dir, 'last_checkpoint')
    named = note.read_text().strip() if note.is_file() else ''
    unreadable = {}
    for path in _candidates(named, Path(folder), names):
        try:
            _check_whole(path)
        except ValueError as error:
            logger.warning(f'Not resumed from: {error}')
            unreadable[path] = error
            continue
        if path == named:
            logger.info(f'Resuming from {path}, as last_checkpoint says.')
        else:
            logger.warning(
                f'Resuming from {path}, the newest readable checkpoint: {note} '
                + (f'names {named}.' if named else 'is missing or empty.')
            )
        return path
    if named:
        raise ValueError(
            f'{note} names {named}, but no checkpoint can be read: '
            f'{"; ".join(map(str, unreadable.values()))}. Put a readable one there, '
            'name one (config key: load_from), or delete last_checkpoint to start '
            'from scratch'
        )
    logger.warning(
        f'There is no readable checkpoint in {folder}: starting from scratch.'
    )
    return None


def _candidates(named: str, folder: Path, names: str) -> Iterator[str]:
    """The named checkpoint, then all others that are there, newest first."""
    if named:
        yield named
    pattern = re.compile(re.escape(names).replace(r'\{\}', r'(\d+)'))
    steps = {p: pattern.fullmatch(p.name) for p in folder.glob('*') if p.is_file()}
    found = [
        (path.stat().st_mtime_ns, int(match[1]), str(path))
        for path, match in steps.items()
        if match
    ]
    for _, _, path in sorted(found, reverse=True):
        if path != named:
            yield path


def _check_whole(path: str) -> None:
    """Read a checkpoint once.

    Raises:
        ValueError: If it cannot be read to its end.
    """
    with suppress(UntrustedCheckpointError):  # Trust is up to the loader.
        load_weights_only(path)


def check_weights_fit(
    model: nn.Module,
    checkpoint: Mapping,
    name: str,
    strict: bool,
    resumed: bool = False,
) -> None:
    """Check that the weights of a checkpoint are those of a model.

    Args:
        model: The model, which may be wrapped.
        checkpoint: An mm checkpoint or a state dict.
        name: What to call the checkpoint.
        strict: Whether all parameters must be there, in their shapes, and nothing that
            adds to them. If not, one must be there, as when only the backbone is taken
            over.
        resumed: Whether the stitches must be all of the checkpoint's.

    Raises:
        ValueError: If they are not, or are of another stitching space.
    """
    model = unwrapped(model)
    weights = checkpoint.get('state_dict', checkpoint)
    if not isinstance(weights, Mapping):
        raise ValueError(
            f'checkpoint {name} holds a {type(weights).__name__} as its state_dict '
            f'({OPTIONS})'
        )
    _check_meta(checkpoint, name)
    weights = {str(k).removeprefix('module.'): v for k, v in weights.items()}
    _check_space(model, weights, name, resumed)
    shapes, wanted = _shapes(weights), _shapes(model.state_dict())
    if not shapes.keys() & wanted.keys():
        raise ValueError(
            f'checkpoint {name} is of another model: none of its keys, such as '
            f'{list(weights)[:3]}, is one of {list(wanted)[:3]}, ... '
            f'({OPTIONS})'
        )
    _check_values({k: v for k, v in weights.items() if k in wanted}, name)
    if strict:
        _check_all_there(model, shapes, wanted, name)


def _check_all_there(
    model: nn.Module, shapes: Mapping, wanted: Mapping, name: str
) -> None:
    for key, shape in shapes.items():
        if shape != wanted.get(key, shape):
            raise ValueError(
                f'checkpoint {name} is of another geometry: {key} has shape {shape}, '
                f'the model has {wanted[key]} ({OPTIONS})'
            )
    for pattern, key in ADDED.items():
        added = [k for k in shapes if re.search(pattern, k)]
        if added and not any(re.search(pattern, k) for k in wanted):
            raise ValueError(
                f'checkpoint {name} holds {added[0]} and others that the model has no '
                f'place for; without them it is not what was trained (config key: '
                f'{key}; {OPTIONS})'
            )
    # Without the buffer, stitching layers would be fitted anew.
    needed = [k for k in wanted if k.endswith('stitching_initialized')]
    needed += [k for k, _ in model.named_parameters()]
    missing = [k for k in needed if k not in shapes]
    if missing:
        raise ValueError(
            f'checkpoint {name} lacks {len(missing)} parameters of the model, such as '
            f'{missing[:3]} ({OPTIONS})'
        )


def _check_space(model: nn.Module, weights: Mapping, name: str, exact: bool) -> None:
    for path, module in model.named_modules():
        if not isinstance(module, StitchedBackbone):
            continue
        try:
            prefix = f'{path}.' if path else ''
            known = check_space_of_weights(weights, module.space, prefix, exact)
        except ValueError as error:
            raise ValueError(f'checkpoint {name}: {error} ({OPTIONS})') from None
        if not known:
            print_log(
                f'checkpoint {name} does not say which stitching space it is of; older '
                'ones do not: its ids are taken for those of the model.',
                logger='current',
            )


def _shapes(weights: Mapping) -> dict[str, tuple[int, ...]]:
    """Shapes of weights by name; the record of a space is none of them."""
    return {
        key: tuple(value.shape)
        for key, value in weights.items()
        if isinstance(value, Tensor) and key.rpartition('.')[2] != SPACE_RECORD
    }


def _check_values(weights: Mapping, name: str) -> None:
    """Refuse what is no tensor of finite real numbers."""
    for key, value in weights.items():
        fault = ''
        if not isinstance(value, Tensor):
            fault = f'is a {type(value).__name__}, no tensor'
        elif value.is_complex():
            fault = 'is complex'
        elif value.is_floating_point() and not value.isfinite().all():
            fault = 'is not finite: the training diverged, or the file is damaged'
        if fault:
            raise ValueError(f'checkpoint {name}: {key} {fault} ({OPTIONS})')


def _check_meta(checkpoint: Mapping, name: str) -> None:
    meta = checkpoint.get('meta', {})
    if not isinstance(meta, Mapping):
        raise ValueError(
            f'checkpoint {name} holds a {type(meta).__name__} as its meta ({OPTIONS})'
        )
    data = meta.get('dataset_meta', {})
    if not isinstance(data, Mapping | NoneType):
        raise ValueError(
            f'checkpoint {name} holds {data!r} as its meta.dataset_meta ({OPTIONS})'
        )
