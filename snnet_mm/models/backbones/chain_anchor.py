"""A chain of an elastic network as a network of its own."""

from collections.abc import Collection, Sequence

from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, BackboneMap, Branch, BranchView, TokenState
from snnet_mm.anchors.pretrained import Weights
from snnet_mm.stitching import Step

from ..layers.narrow_branch import NarrowBranch
from .elastic_backbone import space_of_chains
from .scaling import maps_at, scaled_images, scaled_size


@MODELS.register_module()
class ChainAnchor(Anchor):
    """A network reduced to what one chain of its branches runs.

    It computes what an :class:`ElasticBackbone` computes with this chain, is trained
    like any backbone, and can be an anchor of a stitched backbone. If a gap ends after
    a later block, the state after a block is that before the gap.
    :func:`snnet_mm.exports.single_stitch_config` writes the config.

    Args:
        net: Config of the network, an anchor.
        chain: Its plan; see :class:`ElasticBackbone`. An empty one runs everything.
        stitching_layer: Config of the maps of gaps, without widths.
        out_indices, with_cls, out: See :class:`Anchor`. Default: the network's.
        full_maps: See :class:`ElasticBackbone`.
        kept_blocks, embedding, init_cfg: See :class:`Anchor`.
    """

    def __init__(
        self,
        net: dict,
        chain: str = '',
        stitching_layer: dict | None = None,
        out_indices: Sequence[int] | None = None,
        with_cls: bool | None = None,
        out: str | None = None,
        full_maps: bool = True,
        kept_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        net = MODELS.build(dict(net, embedding=embedding))
        outputs = dict(out_indices=out_indices, with_cls=with_cls, out=out)
        for name, value in outputs.items():
            outputs[name] = getattr(net, name) if value is None else value
        kept = dict(kept_blocks=kept_blocks, embedding=embedding, init_cfg=init_cfg)
        sizes = net.block_dims, net.block_strides, net.num_prefix, net.has_cls
        super().__init__(*sizes, **outputs, **kept)
        self.net, self.view, self.full_maps = net, BranchView(net), full_maps
        self.outputs_prefix = net.outputs_prefix
        self.has_output_layers = net.has_output_layers
        # By the last step that a layer stands for.
        self.layers = nn.ModuleDict()
        self._steps: list[list[Step]] = [[] for _ in range(self.depth)]
        self._add_steps(chain, stitching_layer or dict(type='StitchingLayer'))
        for i in {*range(self.depth)} - self.kept_blocks:
            self.drop_block(i)

    def _add_steps(self, chain: str, gap: dict) -> None:
        """Build the layers, sort all steps by block, and remove what is not needed."""
        view, read = self.view, self.out_indices if self.out == 'maps' else ()
        space = space_of_chains(view, [chain] if chain else [], read, key='chain')
        *_, stitch = space
        self.scale = stitch.scale
        _, *steps = stitch.steps  # without the embedding
        units = dict.fromkeys(range(view.depth), 0)
        for step in steps:
            if isinstance(step, str):
                begin, end = (place.block for place in space.layers[step])
                dims = view.block_dims[max(begin, 0)], view.block_dims[end]
                if step in space.narrow:
                    _, units[end] = space.narrow[step]
                    layer = NarrowBranch(view[end], units[end], dims[1], None, end)
                else:
                    layer = MODELS.build(dict(gap, in_dim=dims[0], out_dim=dims[1]))
                self.layers[str(end)] = layer
                step = str(end)
            else:
                end = step.block
                del units[end]
            self._steps[view.steps[end].block].append(step)
        view.cut(units)

    def forward(self, images: Tensor) -> tuple[BackboneMap, ...] | TokenState:
        output = super().forward(images)
        if self.scale == 1 or self.out == 'end' or not self.full_maps:
            return output
        size = tuple(images.shape[-2:])
        return maps_at(size, scaled_size(size, self.scale, self.net), output)

    def embed(self, images: Tensor) -> TokenState:
        return self.net.embed(scaled_images(images, self.scale, self.net))

    def run_block(self, state: TokenState, i: int) -> TokenState:
        for step in self._steps[i]:
            if isinstance(step, str):
                state = self.layers[step].map_state(state)
            else:
                state = self.view.run_block(state, step.block)
        return state

    def block_path(self, i: int) -> str:
        return f'net.{self.net.block_path(i)}'

    def in_block(self, param_name: str, i: int) -> bool:
        part, _, name = param_name.partition('.')
        own = part == 'layers' and self.view.steps[int(name.split('.')[0])].block == i
        return own or super().in_block(param_name, i)

    def branches(self, i: int) -> tuple[Branch, ...]:
        return (Branch(self.get_submodule(self.block_path(i))),)

    def drop_block(self, i: int) -> None:
        self.net.drop_block(i)
        for step in self._steps[i]:
            if isinstance(step, str):
                self.layers.pop(step)
        self._steps[i] = []

    def to_output(
        self, state: TokenState, with_cls: bool, place: int = 0
    ) -> BackboneMap:
        return self.net.to_output(state, with_cls, place)

    def to_feature_map(self, state: TokenState) -> Tensor:
        return self.net.to_feature_map(state)

    @property
    def input_size(self) -> tuple[int, int] | None:
        return self.net.input_size

    def fix_input_size(self, size: tuple[int, int]) -> None:
        self.net.fix_input_size(scaled_size(size, self.scale, self.net))

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        part, _, name = param_name.partition('.')
        if part == 'net':
            return self.net.layer_depth(name)
        step, *_ = name.split('.')
        return self.view.steps[int(step)].block + 1, self.depth + 2

    def adapt_weights(self, weights: Weights) -> Weights:
        inner = {k for k in weights if k.startswith('net.')}
        net = {k.removeprefix('net.'): weights[k] for k in inner}
        layers = {k: v for k, v in weights.items() if k not in inner}
        adapted = self.net.adapt_weights(net).items()
        return {f'net.{k}': v for k, v in adapted} | layers

    def train(self, mode: bool = True) -> 'ChainAnchor':
        self.view.forget()
        return super().train(mode)
