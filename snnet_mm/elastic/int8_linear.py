"""Linear layers rounded to int8 as in exported graphs, to predict what these do."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Int8Linear(TorchFunctionMode):
    """Rounds weights and inputs of linear layers that run in this context to int8.

    Weights have a scale per output channel, inputs one for all values of a call: as
    graphs of :mod:`snnet_mm.exports` run image by image, so must the model.
    """

    def __torch_function__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: object = None
    ) -> object:
        if function is not F.linear:
            return function(*args, **(kwargs or {}))
        return _rounded(*args, **(kwargs or {}))


def _rounded(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``F.linear`` of rounded tensors."""
    rest = weight
    if len({*weight.shape}) == 1:  # ``x M`` is computed as ``x + x (M - I)``
        rest = weight - torch.eye(len(weight), device=weight.device)
        rest = rest if rest.norm() < weight.norm() else weight
    tiny = torch.finfo(input.dtype).tiny
    low, high = input.amin().clamp(max=0), input.amax().clamp(min=0)
    scale = ((high - low) / 255).clamp(min=tiny)
    zero = (-low / scale).round().int()
    x = torch.fake_quantize_per_tensor_affine(input, scale, zero, 0, 255)
    scales = (rest.abs().amax(1) / 127).clamp(min=tiny)
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    rounded = torch.fake_quantize_per_channel_affine(rest, scales, zeros, 0, -127, 127)
    found = F.linear(x, rounded, bias)
    return found if rest is weight else found + input
