"""Least-squares fits of stitching layers to the states of whole anchors."""

import torch
from states import states_of

from snnet_mm.models import LeastSquares


@torch.no_grad()
def maps_by_hand(net, images):
    """Return weight and bias of every stitching layer, fitted to all its joints."""
    states, maps = {}, {}
    joints = net.space.joints
    for a in {a for found in joints.values() for joint in found for a, _ in joint}:
        states[a, -1] = net.anchors[a].embed(images)
        states |= {(a, i): s for i, s in enumerate(states_of(net.anchors[a], images))}
    for name, found in joints.items():
        x, y = (
            torch.cat([states[place].tokens for place in places])
            for places in zip(*found, strict=True)
        )
        fit = LeastSquares(x.shape[-1], y.shape[-1])
        fit.update(x, y)
        maps[name] = tuple(t.float() for t in fit.x_to_y())
    return maps


def maps_of(net):
    """Return weight and bias of every stitching layer."""
    return {n: (m.weight, m.bias) for n, m in net.stitching_layers.items()}
