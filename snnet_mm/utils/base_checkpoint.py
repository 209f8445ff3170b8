"""Checkpoints that add weights to a base checkpoint and refer to it."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .files import atomic_path

KEY = 'base_checkpoint'  # in the meta of a checkpoint


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of all tensors, including names, shapes and dtypes."""
    found = hashlib.sha256()
    tensors = {k: v for k, v in weights.items() if isinstance(v, Tensor)}
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        found.update(f'{name} {tuple(tensor.shape)} {tensor.dtype}\n'.encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def with_prefixes(
    weights: Mapping[str, Tensor], renames: Mapping[str, str]
) -> dict[str, Tensor]:
    """Return weights with name prefixes replaced, given as old to new prefix."""
    named = {}
    for name, value in weights.items():
        old = next(filter(name.startswith, renames), None)
        named[name if old is None else renames[old] + name.removeprefix(old)] = value
    return named


def save_added(
    path: str | os.PathLike,
    added: Mapping[str, Tensor],
    base: str | os.PathLike,
    sha256: str,
    renames: Mapping[str, str],
    meta: Mapping[str, Any],
) -> None:
    """Write a checkpoint of added weights that refers to its base by path and digest.

    Args:
        path: Checkpoint to write, atomically.
        added: The weights that the base lacks.
        base: File of the base checkpoint.
        sha256: :func:`weights_digest` the weights of the base checkpoint.
        renames: New name prefixes by prefixes of names in the base.
        meta: Other entries of the checkpoint's meta.
    """
    path = Path(path)
    record = dict(
        path=os.path.relpath(Path(base).resolve(), path.parent.resolve()),
        sha256=sha256,
        renames=dict(renames),
    )
    content = dict(meta=dict(meta, **{KEY: record}), state_dict=dict(added))
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def joined_with_base(
    loaded: dict[str, Any], path: Path, read: Callable[[Path], dict[str, Tensor]]
) -> dict[str, Any]:
    """Return a checkpoint joined with the weights of its base, if it refers to one.

    Raises:
        ValueError: If the base is missing, or its weights have changed.
    """
    meta = loaded.get('meta')
    record = meta.get(KEY) if isinstance(meta, Mapping) else None
    if record is None:
        return loaded
    base = path.resolve().parent / record['path']
    if not base.is_file():
        raise ValueError(
            f'checkpoint {path} adds to {base}, which does not exist: put the network '
            'there, or write one file with tools/make_elastic.py --whole'
        )
    weights = read(base)
    if weights_digest(weights) != record['sha256']:
        raise ValueError(
            f'checkpoint {path} adds to {base}, whose weights have changed since: '
            'restore that file, or run tools/make_elastic.py again'
        )
    named = with_prefixes(weights, record['renames'])
    kept = {k: v for k, v in meta.items() if k != KEY}
    return dict(loaded, meta=kept, state_dict={**named, **loaded['state_dict']})
