"""Checkpoints that add weights to a base checkpoint and refer to it."""

import hashlib
import os
from collections.abc import Mapping
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


class BaseCheckpoint:
    """The checkpoint of a network, to which others add weights.

    Args:
        path: Its file.
        weights: What it holds; read and hashed once.
        renames: New name prefixes by prefixes of names in it.

    Attributes:
        names: Names of its weights in the model that has more.
        digest: :func:`weights_digest` of its weights.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        weights: Mapping[str, Tensor],
        renames: Mapping[str, str],
    ) -> None:
        self.path, self.renames = Path(path), dict(renames)
        self.names = {*with_prefixes(weights, renames)}
        self.digest = weights_digest(weights)

    def save_added(
        self,
        path: str | os.PathLike,
        state: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        whole: bool = False,
    ) -> None:
        """Write what a state dict adds, with a reference by path and digest.

        Args:
            path: Checkpoint to write, atomically.
            state: State dict of the model that has more weights.
            meta: Other entries of the checkpoint's meta.
            whole: Whether to write all of the state dict, without a reference.
        """
        path = Path(path)
        record = dict(
            path=os.path.relpath(self.path.resolve(), path.parent.resolve()),
            sha256=self.digest,
            renames=self.renames,
        )
        added = {k: v for k, v in state.items() if k not in self.names}
        content = dict(meta=dict(meta, **{KEY: record}), state_dict=added)
        if whole:
            content = dict(meta=meta, state_dict=dict(state))
        with atomic_path(path) as temporary:
            torch.save(content, temporary)
