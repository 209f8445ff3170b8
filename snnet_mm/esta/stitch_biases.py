"""Biases that belong to one stitch each (ESTA)."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone
from snnet_mm.stitching import Stitch
from snnet_mm.utils import MOVED_SETTINGS, check, register

MOVED_SETTINGS['stitch_bias'] = "plugins=dict(stitch_biases=dict(type='StitchBiases'))"


@register(MODELS)
class StitchBiases(nn.Module):
    """A set of biases ``b^s`` for every stitch: ``W x + b + b^s`` (ESTA, section 4.1).

    A plug-in of a backbone of anchors with ``biased_layers``, as :class:`PlainViT` has.
    A set is for these layers in the blocks that its stitch runs, and is one parameter
    named after the stitch id, zero at first: no optimizer moves those of a stitch that
    is not trained. The layers get theirs while the backbone runs, and while a block
    runs again for its gradient (``with_cp``), when other stitches may have run since.
    """

    shares_prefixes = False  # stitches have no states in common
    exported_settings = dict(qkv_bias=True)  # of anchors; it holds what a stitch adds

    def __init__(self, backbone: StitchedBackbone) -> None:
        super().__init__()
        for anchor in backbone.anchors:
            fits = getattr(anchor, 'biased_layers', ())
            wanted = 'anchors of PlainViT, or of LLaMA in HFDecoderAnchor'
            check(fits, 'backbone.plugins', type(anchor).__name__, wanted)
            anchor.checkpoint_context = self._contexts
        # Lists, which hide the layers: they are registered where they belong.
        self._names: dict[int, list[str]] = {}
        self._layers: dict[int, list[nn.Linear]] = {}
        for stitch in backbone.space:
            names = [
                f'anchors.{anchor}.blocks.{block}.{name}'
                for anchor, begin, end in stitch.segments
                for block in range(begin, end)
                for name in backbone.anchors[anchor].biased_layers
            ]
            layers = [backbone.get_submodule(name) for name in names]
            biases = torch.zeros(sum(layer.out_features for layer in layers))
            self.register_parameter(str(stitch.id), nn.Parameter(biases))
            self._names[stitch.id], self._layers[stitch.id] = names, layers
        for layer in {layer for layers in self._layers.values() for layer in layers}:
            layer.stitch_bias = None
            layer.register_forward_hook(_add_bias)
        self._running: Stitch | None = None
        self.active = True  # not while a stitch is measured as it is shipped
        backbone.register_forward_pre_hook(self._before_forward)
        backbone.register_forward_hook(self._after_forward, always_call=True)

    def idle_parameters(self, stitch: Stitch) -> list[nn.Parameter]:
        """Return the biases of all other stitches."""
        return [p for name, p in self.named_parameters() if name != str(stitch.id)]

    def exported_weights(self, stitch: Stitch) -> dict[str, Tensor]:
        """Return the biases of a stitch by those of the backbone they are added to."""
        parts = self._parts(stitch)
        names = self._names[stitch.id]
        return {f'{n}.bias': p.detach() for n, p in zip(names, parts, strict=True)}

    def _parts(self, stitch: Stitch) -> tuple[Tensor, ...]:
        widths = [layer.out_features for layer in self._layers[stitch.id]]
        return getattr(self, str(stitch.id)).split(widths)

    def _before_forward(self, backbone: StitchedBackbone, *_) -> None:
        self._running = backbone.active_stitch
        if self.active:
            self._give(self._running, self._parts(self._running))

    def _after_forward(self, *_) -> None:
        self._give(self._running)

    def _give(self, stitch: Stitch, biases: tuple[Tensor, ...] | None = None) -> None:
        layers = self._layers[stitch.id]
        for layer, bias in zip(layers, biases or [None] * len(layers), strict=True):
            layer.stitch_bias = bias

    def _contexts(self) -> tuple[AbstractContextManager, AbstractContextManager]:
        return nullcontext(), self._running_again(self._running)

    @contextmanager
    def _running_again(self, stitch: Stitch) -> Iterator[None]:
        self._give(stitch, self._parts(stitch))
        try:
            yield
        finally:
            self._give(stitch)


def _add_bias(layer: nn.Linear, args: tuple, output: Tensor) -> Tensor:
    bias = layer.stitch_bias
    return output if bias is None else output + bias.to(output.dtype)
