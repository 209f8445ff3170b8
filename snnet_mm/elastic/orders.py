"""The nested order of the hidden units of a branch."""

from typing import NamedTuple

import torch
from torch import Tensor

SHARE = 8  # an eighth of the rest is left out at a time
RIDGE = 1e-4  # of the mean diagonal


class UnitRanking(NamedTuple):
    """The order of the units of a branch, and what leaving out the last ones costs.

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
    inverse = torch.cholesky_inverse(_factor(gram))
    weights = inverse @ cross
    units = len(gram) // group
    left = torch.arange(units)
    variance = outputs.diagonal()[: len(of_y)].sum() / number - of_y.square().sum()
    error = (variance - (weights * cross).sum()).clamp(min=0).item()
    errors, gone = {units: error}, []
    while len(left) > 1:
        losses = _losses(inverse, weights, group)
        count = max(1, len(left) // SHARE)
        ranked = losses.argsort()
        leaving, staying = ranked[:count], ranked[count:].sort().values
        gone = left[leaving].flip(0).tolist() + gone
        a, b = (_channels(units, group) for units in (staying, leaving))
        block = inverse[b][:, b]
        both = torch.cat([inverse[b][:, a], weights[b]], dim=1)
        solved = torch.linalg.solve(block, both)
        error += (weights[b] * solved[:, len(a) :]).sum().item()
        weights = weights[a] - inverse[a][:, b] @ solved[:, len(a) :]
        inverse = inverse[a][:, a] - inverse[a][:, b] @ solved[:, : len(a)]
        left = left[staying]
        errors[len(left)] = error
    return UnitRanking(left.tolist() + gone, errors)


def _factor(gram: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix with the least ridge that allows one.

    Sums of few tokens, or of channels whose mean is far above their variance, are
    singular to rounding.
    """
    guard = RIDGE * gram.diagonal().mean().clamp(min=1e-30)
    failed = True
    while failed:
        gram.diagonal().add_(guard)
        factor, failed = torch.linalg.cholesky_ex(gram)
        guard = 10 * guard
    return factor


def _losses(inverse: Tensor, weights: Tensor, group: int) -> Tensor:
    """Return what the error grows by without each unit."""
    if group == 1:
        return weights.square().sum(1) / inverse.diagonal()
    units = len(inverse) // group
    blocks = inverse.view(units, group, units, group)
    blocks = blocks[torch.arange(units), :, torch.arange(units)]
    weights = weights.view(units, group, -1)
    return (weights * torch.linalg.solve(blocks, weights)).sum((1, 2))


def _channels(units: Tensor, group: int) -> Tensor:
    return (units[:, None] * group + torch.arange(group)).flatten()
