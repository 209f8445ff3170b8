"""A residual branch with some of its hidden units, as a stitching layer."""

import torch
from torch import Tensor, nn

from snnet_mm.anchors import Branch, TokenState

from .stitching_layer import StitchingLayer


class UnitOrder(nn.Module):
    """The order of a branch's hidden units, of which every chain runs the first."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.register_buffer('index', torch.arange(units))


class NarrowBranch(StitchingLayer):
    """A branch with some of its hidden units, ``x + W h_K(x) + b``.

    The hidden units ``h_K`` are the network's own; only the output projection, ``W``
    and ``b``, belongs to this layer. It is fitted by least squares from ``h_K(x)`` to
    the state of the network after the branch, less ``x``.

    Args:
        branch: The branch.
        units: Number of hidden units that run.
        dim: Width of the network here.
        order: Order of the hidden units; None if the branch is cut to ``units``.
        step: Step of the branch in its network.
    """

    def __init__(
        self, branch: Branch, units: int, dim: int, order: UnitOrder | None, step: int
    ) -> None:
        super().__init__(units * branch.group, dim)
        self.units, self.step = units, step
        # In a tuple, as they belong to other modules.
        self._shared = branch, order

    def hidden(self, state: TokenState) -> Tensor:
        """Return the hidden activations ``(B, L, units * group)`` of a state."""
        branch, order = self._shared
        index = None if order is None else order.index
        return branch.hidden(state.tokens, state.grid, index, self.units)

    def map_state(self, state: TokenState) -> TokenState:
        return state._replace(tokens=state.tokens + self(self.hidden(state)))

    def pair(self, before: TokenState, after: TokenState) -> tuple[Tensor, Tensor]:
        """See :meth:`StitchingLayer.pair`."""
        return self.hidden(before), after.tokens - before.tokens

    @property
    def num_shared(self) -> int:
        """Number of parameters of the network that the layer reads."""
        branch, order = self._shared
        return branch.num_parameters(order.index, self.units)
