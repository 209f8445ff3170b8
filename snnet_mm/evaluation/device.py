"""The device that a model is measured on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from snnet_mm.stitching import Setup

from .parts import preprocessed_size


def device_of(model: nn.Module) -> torch.device:
    """Where the weights of a model are."""
    return next(model.parameters()).device


def measuring_setup(model: nn.Module, batch: int) -> Setup:
    """What measurements of a model are made on."""
    weight = next(model.parameters())
    if weight.device.type == 'cuda':
        device = torch.cuda.get_device_name(weight.device)
    else:
        threads = torch.get_num_threads()
        device = f'{weight.device.type}, {threads} thread{"s" * (threads > 1)}'
    return Setup(device, batch, str(weight.dtype).removeprefix('torch.'))


def empty_images(
    model: nn.Module, input_size: tuple[int, int] | None, batch: int
) -> Tensor:
    """Images ``(B, 3, H, W)`` without content, for the device and type of a model.

    Raises:
        ValueError: If no size is given and the data preprocessor has none.
    """
    weight = next(model.parameters())
    return weight.new_empty(batch, 3, *(input_size or preprocessed_size(model)))
