"""The record of a stitching space in weights, which refuses those of another space."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from snnet_mm.stitching import StitchingSpace, check_space_record, write_space_record

# Where torch keeps what ``get_extra_state`` gives.
SPACE_RECORD = '_extra_state'


def as_space_record(space: StitchingSpace) -> Tensor:
    """Return the record as bytes ``(N,)``, which all that keeps weights can keep."""
    record = bytearray(write_space_record(space).encode())
    return torch.frombuffer(record, dtype=torch.uint8)


def check_space_of_weights(
    weights: Mapping[str, Tensor],
    space: StitchingSpace,
    prefix: str = '',
    exact: bool = False,
) -> bool:
    """Refuse weights of another space before any are loaded.

    Args:
        weights: A state dict, where the names of the backbone begin with ``prefix``.
        space: The space of the backbone.
        prefix: As above.
        exact: See :func:`check_space_record`.

    Returns:
        Whether they have a record, or need none without stitching layers.
    """
    if prefix + SPACE_RECORD not in weights:
        return not any(k.startswith(f'{prefix}stitching_layers.') for k in weights)
    record = weights[prefix + SPACE_RECORD]
    text = bytes(record.cpu().numpy()) if isinstance(record, Tensor) else ''
    check_space_record(text, space, exact)
    return True
