"""Copies of models to count costs on."""

from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.utils._pytree import tree_leaves, tree_map_only


def copy_on_meta(model: nn.Module, part: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its tensors, but has a part on meta.

    Tensors that several names or modules share stay shared.
    """
    # torch's counter refuses inputs of modules that require gradients.
    copies = {
        id(x): nn.Parameter(x.detach(), False) if isinstance(x, nn.Parameter) else x
        for x in _held_by(model)
    }
    for x in _held_by(part):
        if isinstance(x, Tensor):
            meta = x.detach().to('meta')
            copies[id(x)] = (
                nn.Parameter(meta, False) if isinstance(x, nn.Parameter) else meta
            )
    copy = deepcopy(model, copies)
    for module in copy.modules():
        if 'DeformConv2d' in type(module).__name__:
            module.forward = partial(_without_offsets, module)
    return copy


def noise_like(output: object, device: torch.device) -> object:
    """Return an output with noise in place of its tensors, and zeros for integers."""

    def of(x: Tensor) -> Tensor:
        make = torch.randn if x.is_floating_point() else torch.zeros
        return make(x.shape, dtype=x.dtype, device=device)

    return tree_map_only(Tensor, of, output)


def _held_by(model: nn.Module) -> list[Tensor | ProcessGroup]:
    """Return the tensors of a model, and process groups, which cannot be copied."""
    leaves = tree_leaves([vars(module) for module in model.modules()])
    return [x for x in leaves if isinstance(x, Tensor | ProcessGroup)]


def _without_offsets(conv: nn.Module, x: Tensor, *_: Tensor) -> Tensor:
    """Let a deformable convolution run on meta, with FLOPs that torch counts."""
    if hasattr(conv, 'conv_offset'):
        conv.conv_offset(x)
    settings = conv.stride, conv.padding, conv.dilation, conv.groups
    return F.conv2d(x, conv.weight, getattr(conv, 'bias', None), *settings)
