"""Frozen linear layers and convolutions with a trained low-rank update (LoRA)."""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnet_mm.utils import check, is_whole


class LowRankUpdate(nn.Linear):
    """A linear layer with a low-rank update, and a base class of such layers.

    ``y = x W' + b + (alpha / rank) (x A') B'``. Initially A is random and B zero, so
    the update is a no-op. A and B are named as in loralib and peft.
    """

    plain: type[nn.Linear] = nn.Linear  # class of the merged layer

    def add_update(self, rank: int, alpha: float, key: str) -> None:
        """Freeze the layer and add an update; ``key`` is the config key of the rank."""
        max_rank = min(self.in_features, self.out_features)
        right = is_whole(rank, 1) and rank <= max_rank
        check(right, key, rank, f'1 to {max_rank}, the smaller width')
        self.rank, self.scaling = rank, alpha / rank
        self.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(rank, self.in_features))
        self.lora_B = nn.Parameter(torch.zeros(self.out_features, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Map activations ``(..., in_features)`` to ``(..., out_features)``."""
        # The layer may have another precision, as in a large frozen model.
        down, up = self.lora_A.to(x.dtype), self.lora_B.to(x.dtype)
        update = F.linear(F.linear(x, down), up)
        return super().forward(x) + self.scaling * update

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return a plain layer with equal outputs."""
        with torch.device('meta'):
            layer = self.plain(self.in_features, self.out_features)
        weight = self.weight + self.scaling * self.lora_B @ self.lora_A
        return _with_parameters(layer, weight.to(self.weight), self.bias)


class LoRAConv2d(nn.Conv2d):
    """A convolution with a low-rank update of its weights, as in loralib.

    For a ``k x k`` kernel the update ``(alpha / rank) B A`` has rank ``k rank``. ``A``
    is ``(k rank, k in_channels)`` and ``B`` is ``(k out_channels / groups, k rank)``;
    their product is reshaped to the weights.
    """

    def add_update(self, rank: int, alpha: float) -> None:
        """Freeze the convolution and add an update."""
        self.scaling, (size, _) = alpha / rank, self.kernel_size
        self.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(size * rank, size * self.in_channels))
        rows = size * self.out_channels // self.groups
        self.lora_B = nn.Parameter(torch.zeros(rows, size * rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    @property
    def updated_weight(self) -> Tensor:
        """The weights of the convolution plus its update."""
        update = (self.lora_B @ self.lora_A).to(self.weight)
        return self.weight + self.scaling * update.view_as(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``(B, C, H, W)`` with the updated weights."""
        return self._conv_forward(x, self.updated_weight, self.bias)

    @torch.no_grad()
    def merged(self) -> nn.Conv2d:
        """Return a plain convolution with equal outputs."""
        with torch.device('meta'):
            layer = nn.Conv2d(**_conv_arguments(self))
        return _with_parameters(layer, self.updated_weight, self.bias)


def _with_parameters(
    layer: nn.Linear | nn.Conv2d, weight: Tensor, bias: Tensor | None
) -> nn.Linear | nn.Conv2d:
    """Set weight and bias of a layer built on the meta device."""
    layer.weight = nn.Parameter(weight)
    layer.bias = None if bias is None else nn.Parameter(bias.clone())
    return layer


def read_lora(lora: Mapping | None, targets: Sequence[str]) -> dict | None:
    """Validate settings of low-rank updates; fill in ``alpha`` and ``targets``."""
    if lora is None:
        return None
    found = dict(alpha=1, targets=targets) | dict(lora)
    right = {*found} == {'rank', 'alpha', 'targets'}
    chosen = {*targets} if found['targets'] == 'all' else {*found['targets']}
    right = right and chosen and chosen <= {*targets}
    expected = f"a dict with rank, alpha and targets: 'all', or some of {targets}"
    check(right, 'lora', dict(lora), expected)
    return found


def add_lora(
    module: nn.Module, rank: int, alpha: float, targets: Sequence[str]
) -> None:
    """Add low-rank updates to linear layers of an attention or MLP."""
    for name in targets:
        layer = getattr(module, name, None)
        # EVA's attention reads the weight of qkv without calling the layer.
        read = name == 'qkv' and getattr(module, 'q_bias', None) is not None
        right = type(layer) is nn.Linear and not read
        expected = f'linear layers that the module calls; {name} is not one'
        check(right, 'lora.targets', targets, expected)
        size = layer.in_features, layer.out_features, layer.bias is not None
        updated = LowRankUpdate(*size, dtype=layer.weight.dtype)
        updated.add_update(rank, alpha, 'lora.rank')
        updated.load_state_dict(layer.state_dict(), strict=False)
        setattr(module, name, updated)


def add_lora_everywhere(
    trunk: nn.Module, rank: int, alpha: float, targets: str = 'all'
) -> None:
    """Add updates to all linear layers and convolutions of a network."""
    for module in list(trunk.modules()):
        children = list(module.named_children())
        linear = [name for name, child in children if isinstance(child, nn.Linear)]
        add_lora(module, rank, alpha, linear)
        for name, child in children:
            if type(child) is nn.Conv2d:
                updated = LoRAConv2d(**_conv_arguments(child), dtype=child.weight.dtype)
                updated.add_update(rank, alpha)
                updated.load_state_dict(child.state_dict(), strict=False)
                setattr(module, name, updated)


def _conv_arguments(conv: nn.Conv2d) -> dict:
    keys = 'in_channels', 'out_channels', 'kernel_size', 'stride', 'padding'
    keys += 'dilation', 'groups'
    return {key: getattr(conv, key) for key in keys} | dict(bias=conv.bias is not None)
