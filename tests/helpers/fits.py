"""Least-squares maps of stitching layers, from the states of whole anchors."""

import torch
from states import states_of

from snnet_mm.models import LeastSquares


@torch.no_grad()
def maps_by_hand(net, images):
    """Weight and bias of every stitching layer, fitted to what it joins."""
    states, maps = {}, {}
    joined = [p for spec in net.space.layers.values() for p in spec]
    for a in {position.anchor for position in joined}:
        states[a, -1] = net.anchors[a].embed(images)
        states |= {(a, i): s for i, s in enumerate(states_of(net.anchors[a], images))}
    for name, (source, target) in net.space.layers.items():
        x, y = states[source].tokens, states[target].tokens
        fit = LeastSquares(x.shape[-1], y.shape[-1])
        fit.update(x, y)
        maps[name] = tuple(t.float() for t in fit.x_to_y())
    return maps


def maps_of(net):
    """Weight and bias of every stitching layer."""
    return {n: (m.weight, m.bias) for n, m in net.stitching_layers.items()}
