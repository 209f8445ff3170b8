"""Counts of trained parameters."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from snnet_mm.models import StitchedBackbone, unwrapped


class ParameterCount(NamedTuple):
    """Parameters of a part of a model that are trained, and all of them."""

    trained: int
    total: int

    def __str__(self) -> str:
        return f'{self.trained:,} of {self.total:,}'


def count_parameters(model: nn.Module) -> dict[str, ParameterCount]:
    """Count parameters by part: ``'decode_head'``; of a stitched backbone several."""
    model = unwrapped(model)
    prefixes = [
        f'{name}.' if name else ''
        for name, module in model.named_modules()
        if isinstance(module, StitchedBackbone)
    ]
    counts: dict[str, ParameterCount] = {}
    for name, parameter in model.named_parameters():
        prefix = next((p for p in prefixes if name.startswith(p)), '')
        part = prefix + name.removeprefix(prefix).partition('.')[0]
        trained, total = counts.get(part, (0, 0))
        number = parameter.numel()
        trained += number * parameter.requires_grad
        counts[part] = ParameterCount(trained, total + number)
    return counts
