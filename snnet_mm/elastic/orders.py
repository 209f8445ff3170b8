"""The nested order of the hidden units of a branch."""

from typing import NamedTuple

import torch
from torch import Tensor

from snnet_mm.models.layers.least_squares import factor_with_ridge

PORTION = 8  # an eighth of the rest is left out at a time
RIDGE = 1e-4  # of each variance


class UnitRanking(NamedTuple):
    """The order of the units of a branch, and the error without the last ones.

    ``order`` lists units from the last to be left out to the first. ``errors`` has the
    squared error per token of a refitted output projection, by number of units.
    """

    order: list[int]
    errors: dict[int, float]


@torch.no_grad()
def rank_units(sums: tuple[Tensor, Tensor, Tensor], group: int = 1) -> UnitRanking:
    """Order hidden units by how little the output loses without them.

    Units leave in rounds, those first without which a refitted projection loses least:
    ``w' inv(P) w`` for the weights ``w`` of a unit and its block ``P`` of the inverse
    Gram matrix of those left (optimal brain surgeon, for groups of channels). The
    inverse is updated after each round, never computed again.

    Args:
        sums: Sums over tokens of ``h h'`` ``(K + 1, K + 1)``, ``h y'`` ``(K + 1, C)``
            and ``y y'`` ``(C + 1, ...)``, whose last row and column belong to a one
            that is appended to the hidden channels ``h`` and the outputs ``y``.
        group: Hidden channels per unit.
    """
    gram, cross, outputs = sums
    number = gram[-1, -1]
    mean, of_y = gram[-1, :-1] / number, cross[-1] / number
    gram = gram[:-1, :-1] / number - mean.outer(mean)
    cross = cross[:-1] / number - mean.outer(of_y)
    # A mean of variances would drown channels beside one of large values. The floor is
    # for channels that are constant.
    ridge = (RIDGE * gram.diagonal()).clamp(min=1e-30)
    inverse = torch.cholesky_inverse(factor_with_ridge(gram, ridge))
    weights = inverse @ cross
    units = len(gram) // group
    left = torch.arange(units, device=gram.device)
    variance = outputs.diagonal()[: len(of_y)].sum() / number - of_y.square().sum()
    error = (variance - (weights * cross).sum()).clamp(min=0).item()
    errors, gone = {units: error}, []
    while len(left) > 1:
        losses = _losses(inverse, weights, group)
        count = max(1, len(left) // PORTION)
        ranked = losses.argsort()
        leaving, staying = ranked[:count], ranked[count:].sort().values
        gone = left[leaving].flip(0).tolist() + gone
        a, b = (channels_of(units, group) for units in (staying, leaving))
        block = inverse[b][:, b]
        both = torch.cat([inverse[b][:, a], weights[b]], dim=1)
        solved = torch.linalg.solve(block, both)
        error += (weights[b] * solved[:, len(a) :]).sum().item()
        weights = weights[a] - inverse[a][:, b] @ solved[:, len(a) :]
        inverse = inverse[a][:, a] - inverse[a][:, b] @ solved[:, : len(a)]
        left = left[staying]
        errors[len(left)] = error
    return UnitRanking(left.tolist() + gone, errors)


def _losses(inverse: Tensor, weights: Tensor, group: int) -> Tensor:
    """Return the increase of the error without each unit."""
    if group == 1:
        return weights.square().sum(1) / inverse.diagonal()
    units = len(inverse) // group
    blocks = inverse.view(units, group, units, group)
    each = torch.arange(units, device=inverse.device)
    blocks = blocks[each, :, each]
    weights = weights.view(units, group, -1)
    return (weights * torch.linalg.solve(blocks, weights)).sum((1, 2))


def channels_of(units: Tensor, group: int) -> Tensor:
    """Return the hidden channels of some units, in their order."""
    return (units[:, None] * group + torch.arange(group, device=units.device)).flatten()
