"""Parameters that belong to one stitch each: biases or low-rank updates (ESTA)."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone, StitchPlugin
from snnet_mm.stitching import Stitch
from snnet_mm.utils import check, is_whole


class StitchParameters(StitchPlugin):
    """Per-stitch parameters that are added to linear layers of the anchors.

    A plug-in for anchors with ``biased_layers``, such as :class:`PlainViT`. Each stitch
    has one flat tensor, named after its id, with parameters for these layers in the
    blocks that it runs. As the tensors are separate, no optimizer changes the
    parameters of a stitch that is not trained.
    """

    def __init__(self, backbone: StitchedBackbone) -> None:
        for anchor in backbone.anchors:
            fits = getattr(anchor, 'biased_layers', ())
            expected = 'anchors of PlainViT, ConvNeXt in TimmStageAnchor, or LLaMA'
            check(fits, 'backbone.plugins', type(anchor).__name__, expected)
        super().__init__(backbone)
        # Layers by stitch and name. A plain dict, as the anchors register them.
        self._layers: dict[int, dict[str, nn.Linear]] = {}
        self._sizes: dict[int, list[int]] = {}
        for stitch in backbone.space:
            self._layers[stitch.id] = layers = _layers_of(backbone, stitch)
            flat = [
                self._new(layer, anchor=int(name.split('.')[1]))
                for name, layer in layers.items()
            ]
            self.register_parameter(str(stitch.id), nn.Parameter(torch.cat(flat)))
            self._sizes[stitch.id] = [len(part) for part in flat]
        for layer in set().union(*(of.values() for of in self._layers.values())):
            layer.of_stitch = None
            layer.register_forward_hook(self._add)

    @abstractmethod
    def _new(self, layer: nn.Linear, anchor: int) -> Tensor:
        """Return initial parameters ``(N,)`` that leave a layer's output unchanged."""

    @staticmethod
    @abstractmethod
    def _add(layer: nn.Linear, args: tuple, output: Tensor) -> Tensor:
        """Apply ``layer.of_stitch``, if not None, to the output of the layer."""

    @abstractmethod
    def _exported(self, layer: nn.Linear, part: Tensor) -> tuple[str, Tensor]:
        """Return the name of the layer's exported parameter, and the value to add."""

    def exported_weights(
        self, stitch: Stitch, weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        exported = {}
        layers, parts = self._layers[stitch.id], self._parts(stitch)
        for (name, layer), part in zip(layers.items(), parts, strict=True):
            parameter, value = self._exported(layer, part.detach())
            key = f'{name}.{parameter}'
            exported[key] = value + weights.get(key, 0)
        return exported

    def _parts(self, stitch: Stitch) -> tuple[Tensor, ...]:
        return getattr(self, str(stitch.id)).split(self._sizes[stitch.id])

    def _apply_to(self, stitch: Stitch) -> None:
        layers = self._layers[stitch.id].values()
        for layer, part in zip(layers, self._parts(stitch), strict=True):
            layer.of_stitch = part

    def _undo(self, stitch: Stitch) -> None:
        for layer in self._layers[stitch.id].values():
            layer.of_stitch = None


@MODELS.register_module()
class StitchBiases(StitchParameters):
    """A set of biases ``b^s`` for every stitch: ``W x + b + b^s`` (ESTA, section 4.1).

    They are initialised to zero; see :class:`StitchParameters`.
    """

    def _new(self, layer: nn.Linear, anchor: int) -> Tensor:
        if layer.bias is None:
            self.exported_settings = dict(qkv_bias=True)
        return torch.zeros(layer.out_features)

    @staticmethod
    def _add(layer: nn.Linear, args: tuple, output: Tensor) -> Tensor:
        bias = layer.of_stitch
        return output if bias is None else output + bias.to(output.dtype)

    def _exported(self, layer: nn.Linear, part: Tensor) -> tuple[str, Tensor]:
        return 'bias', part


@MODELS.register_module()
class StitchLoRA(StitchParameters):
    """A set of low-rank updates for every stitch: ``W x + b + B^s A^s x``.

    The baseline in ESTA's figure 12; see :class:`StitchParameters`. ``A`` is
    initialised as in :class:`LowRankUpdate`, ``B`` to zero. The plug-in does not freeze
    the anchors: set ``frozen_stages`` to their depth.

    Args:
        ranks: Rank of the updates for each anchor.
    """

    def __init__(self, backbone: StitchedBackbone, ranks: Sequence[int]) -> None:
        self._ranks = tuple(ranks)
        one_each = len(self._ranks) == len(backbone.anchors)
        key, expected = 'backbone.plugins.ranks', 'a rank for each anchor'
        check(one_each, key, ranks, f'{expected}: {len(backbone.anchors)}')
        super().__init__(backbone)

    def _new(self, layer: nn.Linear, anchor: int) -> Tensor:
        rank = self._ranks[anchor]
        max_rank = min(layer.in_features, layer.out_features)
        right = is_whole(rank, 1) and rank <= max_rank
        expected = f'1 to {max_rank}, the smaller width'
        check(right, 'backbone.plugins.ranks', rank, expected)
        down = torch.empty(rank, layer.in_features)
        nn.init.kaiming_uniform_(down, a=math.sqrt(5))
        return torch.cat([down.flatten(), torch.zeros(layer.out_features * rank)])

    @staticmethod
    def _add(layer: nn.Linear, args: tuple, output: Tensor) -> Tensor:
        if layer.of_stitch is None:
            return output
        (x,) = args
        down, up = _low_rank(layer, layer.of_stitch.to(x.dtype))
        return output + F.linear(F.linear(x, down), up)

    def _exported(self, layer: nn.Linear, part: Tensor) -> tuple[str, Tensor]:
        down, up = _low_rank(layer, part)
        return 'weight', up @ down


def _layers_of(backbone: StitchedBackbone, stitch: Stitch) -> dict[str, nn.Linear]:
    """Return the layers that a stitch updates, by their names in the backbone."""
    layers = {}
    for number, begin, end in stitch.segments:
        anchor = backbone.anchors[number]
        # The transition into a stage may be part of a block, or a block of its own.
        names = tuple(f'.{name}' for name in anchor.biased_layers)
        for block in range(begin, end):
            for name, layer in anchor.blocks[block].named_modules(prefix=f'{block}'):
                if name.endswith(names):
                    layers[f'anchors.{number}.blocks.{name}'] = layer
    return layers


def _low_rank(layer: nn.Linear, part: Tensor) -> tuple[Tensor, Tensor]:
    widths = layer.in_features, layer.out_features
    rank = len(part) // sum(widths)
    down, up = part.split([rank * width for width in widths])
    return down.unflatten(0, (rank, -1)), up.unflatten(0, (-1, rank))
