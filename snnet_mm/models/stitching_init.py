"""Least-squares initialisation of all stitching layers of a backbone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from snnet_mm.anchors import Anchor, TokenState
from snnet_mm.stitching import Position
from snnet_mm.utils import check

from .backbones.stitched_backbone import StitchedBackbone
from .backbones.walk import walk
from .layers.least_squares import LeastSquares


@torch.no_grad()
def fit_stitching_layers(
    backbone: StitchedBackbone, batches: Iterable[Tensor], ridge: float = 1e-8
) -> int:
    """Set every stitching layer to its least-squares map (SN-Netv2, equation 2).

    All anchors run on the preprocessed images ``(B, 3, H, W)`` in eval mode; layers of
    both directions between the same two positions share their sums. In a distributed
    run every rank gives its own images, or none if others have some; all ranks end with
    equal maps, or all raise.

    Returns:
        The number of images seen on this rank.
    """
    for layer in backbone.stitching_layers.values():
        affine, wanted = hasattr(layer, 'set_map'), 'affine maps to fit, else no hook'
        check(affine, 'default_hooks.stitch_init', type(layer).__name__, wanted)
    fits = _new_fits(backbone, ridge)
    positions = {position for pair in fits for position in pair}
    training, num_images = backbone.training, 0
    backbone.eval()
    try:
        for images in batches:
            with torch.autocast(images.device.type, enabled=False):
                states = _states_at(backbone.anchors, images, positions)
                for (a, b), fit in fits.items():
                    fit.update(states[a].tokens, states[b].tokens)
            num_images += len(images)
    finally:
        backbone.train(training)
    # Every rank adds its sums before any rank may raise.
    for fit in fits.values():
        fit.all_reduce()
    maps = {
        name: fits[a, b].x_to_y() if (a, b) in fits else fits[b, a].y_to_x()
        for name, (a, b) in backbone.space.layers.items()
    }
    for name, weight_and_bias in maps.items():
        backbone.stitching_layers[name].set_map(*weight_and_bias)
    backbone.stitching_initialized.fill_(True)
    return num_images


def _new_fits(
    backbone: StitchedBackbone, ridge: float
) -> dict[tuple[Position, Position], LeastSquares]:
    """One fit for each two positions, in the direction of their first layer."""
    fits, device = {}, next(backbone.parameters()).device
    directions = dict.fromkeys((a, b) for a, b in backbone.space.layers.values())
    for a, b in directions:
        if (b, a) not in fits:
            widths = backbone.width_at(a), backbone.width_at(b)
            fits[a, b] = LeastSquares(*widths, (b, a) in directions, ridge, device)
    return fits


def _states_at(
    anchors: Sequence[Anchor], images: Tensor, positions: set[Position]
) -> dict[Position, TokenState]:
    """Return the states of whole anchors at the given positions."""
    found: dict[Position, TokenState] = {}
    for a in {position.anchor for position in positions}:
        blocks = [position.block for position in positions if position.anchor == a]
        steps = [Position(a, i) for i in range(-1, max(blocks) + 1)]
        taps = [(Position(a, i), None) for i in blocks]
        _, states = walk(anchors, {}, steps, images, taps)
        found |= {position: state for (position, _), state in states.items()}
    return found
