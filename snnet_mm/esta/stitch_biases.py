"""Biases that belong to one stitch each (ESTA)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone
from snnet_mm.stitching import Stitch
from snnet_mm.utils import check, register


@register(MODELS)
class StitchBiases(nn.Module):
    """A set of biases ``b^s`` for every stitch: ``W x + b + b^s`` (ESTA, section 4.1).

    A plug-in of a backbone of anchors with ``biased_layers``, as :class:`PlainViT` has.
    A stitch has biases for these layers in the blocks that it runs, in one flat tensor
    named after the stitch id: no optimizer moves those of a stitch that is not trained.
    They begin at zero. The layers get theirs while the backbone runs, and while a block
    runs again for its gradient (``with_cp``), when other stitches may have run since.
    """

    shares_prefixes = False  # stitches have no states in common
    exported_settings: dict = {}  # of anchors; they hold what a stitch adds

    def __init__(self, backbone: StitchedBackbone) -> None:
        super().__init__()
        for anchor in backbone.anchors:
            fits = getattr(anchor, 'biased_layers', ())
            wanted = 'anchors of PlainViT, ConvNeXt in TimmStageAnchor, or LLaMA'
            check(fits, 'backbone.plugins', type(anchor).__name__, wanted)
            anchor.checkpoint_context = self._contexts
        # By stitch and name; a plain dict, as they are registered where they belong.
        self._layers: dict[int, dict[str, nn.Linear]] = {}
        for stitch in backbone.space:
            self._layers[stitch.id] = layers = _layers_of(backbone, stitch)
            number = sum(layer.out_features for layer in layers.values())
            biases = nn.Parameter(torch.zeros(number))
            self.register_parameter(str(stitch.id), biases)
        for layer in set().union(*(of.values() for of in self._layers.values())):
            if layer.bias is None:
                self.exported_settings = dict(qkv_bias=True)
            layer.bias_of_stitch = None
            layer.register_forward_hook(_add)
        self._running: Stitch | None = None
        self.active = True  # not while a stitch is measured as it is shipped
        backbone.register_forward_pre_hook(self._before_forward)
        backbone.register_forward_hook(self._after_forward, always_call=True)

    def idle_parameters(self, stitch: Stitch) -> list[nn.Parameter]:
        """Return the biases of all other stitches."""
        return [p for name, p in self.named_parameters() if name != str(stitch.id)]

    def exported_weights(self, stitch: Stitch) -> dict[str, Tensor]:
        """Return what is added to parameters of the backbone, by their names."""
        pairs = zip(self._layers[stitch.id], self._biases(stitch), strict=True)
        return {f'{name}.bias': bias.detach() for name, bias in pairs}

    def _biases(self, stitch: Stitch) -> tuple[Tensor, ...]:
        sizes = [layer.out_features for layer in self._layers[stitch.id].values()]
        return getattr(self, str(stitch.id)).split(sizes)

    def _before_forward(self, backbone: StitchedBackbone, *_) -> None:
        self._running = backbone.active_stitch
        if self.active:
            self._give(self._running, self._biases(self._running))

    def _after_forward(self, *_) -> None:
        self._give(self._running)

    def _give(self, stitch: Stitch, biases: tuple[Tensor, ...] | None = None) -> None:
        layers = self._layers[stitch.id].values()
        for layer, bias in zip(layers, biases or [None] * len(layers), strict=True):
            layer.bias_of_stitch = bias

    def _contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), self._running_again(self._running)

    @contextmanager
    def _running_again(self, stitch: Stitch) -> Iterator[None]:
        self._give(stitch, self._biases(stitch))
        try:
            yield
        finally:
            self._give(stitch)


def _add(layer: nn.Linear, args: tuple, output: Tensor) -> Tensor:
    bias = layer.bias_of_stitch
    return output if bias is None else output + bias.to(output.dtype)


def _layers_of(backbone: StitchedBackbone, stitch: Stitch) -> dict[str, nn.Linear]:
    """Return the layers that a stitch adds to, by their names in the backbone."""
    layers = {}
    for number, begin, end in stitch.segments:
        anchor = backbone.anchors[number]
        # What leads into a stage may be joined to a block, or be one by itself.
        names = tuple(f'.{name}' for name in anchor.biased_layers)
        for block in range(begin, end):
            for name, layer in anchor.blocks[block].named_modules(prefix=f'{block}'):
                if name.endswith(names):
                    layers[f'anchors.{number}.blocks.{name}'] = layer
    return layers
