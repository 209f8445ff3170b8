"""Weights that say of which stitching space they are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from snnet_mm.stitching import StitchingSpace, check_space_record, write_space_record

# Where torch keeps what ``get_extra_state`` gives.
SPACE_RECORD = '_extra_state'


class SpaceInWeights(nn.Module):
    """A module with a ``space``, whose record is in its state dict.

    However weights are loaded, those of another space are refused; see
    :func:`check_space_record`. Those without a record are taken.
    """

    space: StitchingSpace

    def get_extra_state(self) -> Tensor:
        """The record, in the form that all which keeps weights can keep."""
        return as_space_record(self.space)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse weights of another space.

        Raises:
            ValueError: If they are, or their record cannot be read.
        """
        self.check_weights({SPACE_RECORD: state})

    def check_weights(
        self, weights: Mapping[str, Tensor], prefix: str = '', exact: bool = False
    ) -> bool:
        """Refuse weights of another space before any are loaded.

        Args:
            weights: A state dict.
            prefix: What the names of this module begin with in it.
            exact: See :func:`check_space_record`.

        Returns:
            Whether they have a record, or need none without stitching layers.

        Raises:
            ValueError: If they are of another space, or their record cannot be read.
        """
        if prefix + SPACE_RECORD not in weights:
            return not any(k.startswith(f'{prefix}stitching_layers.') for k in weights)
        record = weights[prefix + SPACE_RECORD]
        text = bytes(record.cpu().numpy()) if isinstance(record, Tensor) else ''
        check_space_record(text, self.space, exact)
        return True

    def _load_from_state_dict(self, state_dict: Mapping, prefix: str, *args) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        _, _, missing_keys, *_ = args
        if prefix + SPACE_RECORD in missing_keys:
            missing_keys.remove(prefix + SPACE_RECORD)


def as_space_record(space: StitchingSpace) -> Tensor:
    """What :func:`write_space_record` gives, as bytes ``(N,)``."""
    return torch.frombuffer(
        bytearray(write_space_record(space).encode()), dtype=torch.uint8
    )
