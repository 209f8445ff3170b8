"""Backbones of the mm packages as anchors: their own modules, run block by block."""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from math import prod
from typing import ClassVar

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, refusal

from .base import Anchor, BackboneMap, TokenState
from .branches import Branch


class MMAnchor(Anchor):
    """A backbone of mmseg, mmdet or mmpretrain, run one block at a time.

    The network is built from its own config and keeps its parameter names, under
    ``net.``. Blocks run the same operations in the same order as its ``forward``, so
    that outputs are equal bit for bit. Layers between two stages run with the first
    block of the later stage.

    Args:
        net: Config of the backbone, or the backbone.
        kept_blocks, embedding: See :class:`Anchor`.
    """

    # Packages and classes whose ``forward`` this class mirrors.
    mirrors: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init__(
        self,
        net: dict | nn.Module,
        kept_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        net = MODELS.build(dict(net)) if isinstance(net, dict) else net
        family = mm_family(net)
        wanted = f"type='{family.__name__}'"
        check(isinstance(self, family), 'backbone.type', type(self).__name__, wanted)
        stages = self.stages_of(net)
        dims, strides = self.scales_of(net)
        num_prefix = self.num_prefix_of(net)
        super().__init__(
            [d for d, stage in zip(dims, stages, strict=True) for _ in stage],
            [s for s, stage in zip(strides, stages, strict=True) for _ in stage],
            *(num_prefix, num_prefix > 0),
            kept_blocks=kept_blocks,
            embedding=embedding,
            init_cfg=init_cfg,
        )
        self.net = net
        # Stage of every block, and its index within the stage.
        self._places = [
            (s, j) for s, blocks in enumerate(stages) for j in range(len(blocks))
        ]
        self.out_indices = tuple(self._ends(net.out_indices))
        names = {id(m): name for name, m in self.named_modules()}
        self._paths = [names[id(block)] for stage in stages for block in stage]
        for i in {*range(self.depth)} - self.kept_blocks:
            self.set_submodule(self._paths[i], nn.Identity())

    @staticmethod
    @abstractmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        """Return the blocks of every stage."""

    @staticmethod
    @abstractmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        """Return width and stride of every stage."""

    @staticmethod
    def num_prefix_of(net: nn.Module) -> int:
        """Return the number of tokens before the patches."""
        return 0

    @abstractmethod
    def output_at(self, state: TokenState, place: int) -> BackboneMap | list[Tensor]:
        """Return the output of the network for ``out_indices[place]``."""

    def to_output(
        self, state: TokenState, with_cls: bool = False, place: int = -1
    ) -> BackboneMap:
        return self.output_at(state, place)

    def enters(self, i: int) -> bool:
        stage, j = self._places[i]
        return j == 0 and stage > 0

    def enter(self, state: TokenState, i: int) -> TokenState:
        return self.enter_stage(state, self._places[i][0])

    def enter_stage(self, state: TokenState, stage: int) -> TokenState:
        """Run the layers between the previous stage and ``stage``."""
        return state

    def run_block(self, state: TokenState, i: int) -> TokenState:
        if self.enters(i):
            state = self.enter(state, i)
        state = self.run_own(state, self.get_submodule(self._paths[i]))
        return self.finish(state) if i == self.depth - 1 else state

    def block_path(self, i: int) -> str:
        return self._paths[i]

    def run_own(self, state: TokenState, block: nn.Module) -> TokenState:
        """Run a block itself, without the layers before its stage and after it."""
        return state._replace(tokens=block(state.tokens, state.grid))

    def to_feature_map(self, state: TokenState) -> Tensor:
        return self.to_output(state)

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """No-op: mm's networks resample in every forward."""

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        levels = self.depth + 2
        for i, path in enumerate(self._paths):
            if param_name.startswith(f'{path}.'):
                return i + 1, levels
        for prefix, level in self.other_levels():
            if param_name.startswith(f'net.{prefix}'):
                return level, levels
        return 0, levels

    def other_levels(self) -> list[tuple[str, int]]:
        """Return prefixes of parameters outside the blocks, and their levels."""
        return [('norm', self.depth + 1)]

    def first_block(self, stage: int) -> int:
        """Return the number of the first block of a stage."""
        return self._places.index((stage, 0))

    def init_weights(self) -> None:
        super(Anchor, self).init_weights()

    def _ends(self, places: Sequence[int]) -> list[int]:
        """Return the blocks after which the outputs at ``places`` are taken."""
        last = {stage: i for i, (stage, _) in enumerate(self._places)}
        return [last[stage] for stage in places]


class _TokenNet(MMAnchor):
    """A plain ViT: one stage of identical blocks on tokens."""

    @staticmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        return [net.layers]

    @staticmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        projection = net.patch_embed.projection
        return [projection.out_channels], [projection.stride[0]]

    def run_own(self, state: TokenState, block: nn.Module) -> TokenState:
        return state._replace(tokens=self.call_block(block, state.tokens))

    @property
    def finishes(self) -> bool:
        return bool(self.net.final_norm)

    def finish(self, state: TokenState) -> TokenState:
        return state.mapped(self.last_norm) if self.finishes else state

    def call_block(self, block: nn.Module, tokens: Tensor) -> Tensor:
        return block(tokens)

    def other_levels(self) -> list[tuple[str, int]]:
        return [('ln', self.depth + 1)]

    def _ends(self, places: Sequence[int]) -> list[int]:
        return [i % self.depth for i in places]


class _MapNet(MMAnchor):
    """A network whose blocks run on feature maps."""

    def run_own(self, state: TokenState, block: nn.Module) -> TokenState:
        return TokenState.of_map(block(_map_of(state)))


@MODELS.register_module()
class MMSegViT(_TokenNet):
    """mmsegmentation's ViT, BEiT and MAE."""

    mirrors = tuple(('mmseg', name) for name in ('VisionTransformer', 'BEiT', 'MAE'))

    @staticmethod
    def num_prefix_of(net: nn.Module) -> int:
        return int(getattr(net, 'with_cls_token', True))

    @property
    def outputs_prefix(self) -> bool:
        return getattr(self.net, 'output_cls_token', False)

    def embed(self, images: Tensor) -> TokenState:
        net = self.net
        x, grid = net.patch_embed(images)
        x = torch.cat((net.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        if hasattr(net, '_pos_embeding'):  # the ViT
            x = net._pos_embeding(x, grid, net.pos_embed)
            x = x if net.with_cls_token else x[:, 1:]
            x = net.pre_ln(x) if net.pre_norm else x
        elif hasattr(net, 'pos_embed'):  # MAE, for images of one size
            x = x + net.pos_embed
        return TokenState(x, tuple(grid))

    def last_norm(self, x: Tensor) -> Tensor:
        """Apply the final norm."""
        return self.net.norm1(x)

    def output_at(self, state: TokenState, place: int) -> BackboneMap | list[Tensor]:
        net, x = self.net, state.tokens
        patches = x[:, 1:] if getattr(net, 'with_cls_token', True) else x
        out = patches.reshape(x.shape[0], *state.grid, x.shape[-1])
        out = out.permute(0, 3, 1, 2).contiguous()
        return [out, x[:, 0]] if self.outputs_prefix else out


@MODELS.register_module()
class MMPretrainViT(_TokenNet):
    """mmpretrain's ViT and BEiT; ``out_type`` of the network selects its outputs."""

    mirrors = ('mmpretrain', 'VisionTransformer'), ('mmpretrain', 'BEiTViT')

    @staticmethod
    def num_prefix_of(net: nn.Module) -> int:
        return int(net.cls_token is not None)

    @property
    def outputs_prefix(self) -> bool:
        return self.net.out_type in ('cls_token', 'raw')

    def embed(self, images: Tensor) -> TokenState:
        net = self.net
        x, grid = net.patch_embed(images)
        if net.cls_token is not None:
            x = torch.cat((net.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        if net.pos_embed is not None:
            x = x + _resized_positions(net, net.pos_embed, grid)
        x = net.drop_after_pos(x)
        if hasattr(net, 'pre_norm'):
            x = net.pre_norm(x)
        return TokenState(x, tuple(grid))

    def call_block(self, block: nn.Module, tokens: Tensor) -> Tensor:
        if not hasattr(self.net, 'rel_pos_bias'):
            return block(tokens)
        shared = self.net.rel_pos_bias
        return block(tokens, shared() if shared is not None else None)

    def branches(self, i: int) -> tuple[Branch, ...]:
        # A bias that all blocks share belongs to none of them.
        if getattr(self.net, 'rel_pos_bias', None) is not None:
            return (Branch(self.net.layers[i]),)
        return super().branches(i)

    def last_norm(self, x: Tensor) -> Tensor:
        """Apply the final norm."""
        return self.net.ln1(x)

    def output_at(self, state: TokenState, place: int) -> BackboneMap:
        return self.net._format_output(state.tokens, state.grid)


@MODELS.register_module()
class MMSwin(MMAnchor):
    """Swin of mmseg, mmdet and mmpretrain."""

    mirrors = tuple((p, 'SwinTransformer') for p in ('mmseg', 'mmdet', 'mmpretrain'))
    has_output_layers = True

    @staticmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        value = getattr(net, 'out_after_downsample', False)
        check(not value, 'backbone.out_after_downsample', value, 'False')
        return [stage.blocks for stage in net.stages]

    @staticmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        stride = net.patch_embed.projection.stride[0]
        return list(net.num_features), [stride * 2**s for s in range(len(net.stages))]

    def embed(self, images: Tensor) -> TokenState:
        net = self.net
        x, grid = net.patch_embed(images)
        if net.use_abs_pos_embed and hasattr(net, 'num_extra_tokens'):  # mmpretrain
            x = x + _resized_positions(net, net.absolute_pos_embed, grid)
        elif net.use_abs_pos_embed:
            x = x + net.absolute_pos_embed
        return TokenState(net.drop_after_pos(x), tuple(grid))

    def enter_stage(self, state: TokenState, stage: int) -> TokenState:
        x, grid = self.net.stages[stage - 1].downsample(state.tokens, state.grid)
        return TokenState(x, tuple(grid))

    def output_at(self, state: TokenState, place: int) -> Tensor:
        net = self.net
        stage = net.out_indices[place]
        out = getattr(net, f'norm{stage}')(state.tokens)
        out = out.view(-1, *state.grid, net.num_features[stage])
        return out.permute(0, 3, 1, 2).contiguous()

    def other_levels(self) -> list[tuple[str, int]]:
        between = [
            (f'stages.{s}.downsample.', self.first_block(s + 1) + 1)
            for s in range(len(self.net.stages) - 1)
        ]
        return [*between, *super().other_levels()]


@MODELS.register_module()
class MMResNet(_MapNet):
    """ResNet and its variants in mmseg, mmdet and mmpretrain."""

    mirrors = tuple((p, 'ResNet') for p in ('mmseg', 'mmdet', 'mmpretrain'))

    @staticmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        return [getattr(net, name) for name in net.res_layers]

    @staticmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        last = [getattr(net, name)[-1] for name in net.res_layers]
        dims = [getattr(b, 'conv3', b.conv2).out_channels for b in last]
        return dims, [4 * prod(net.strides[: s + 1]) for s in range(len(dims))]

    def embed(self, images: Tensor) -> TokenState:
        net = self.net
        if net.deep_stem:
            x = net.stem(images)
        else:
            x = net.relu(net.norm1(net.conv1(images)))
        return TokenState.of_map(net.maxpool(x))

    def output_at(self, state: TokenState, place: int) -> Tensor:
        return _map_of(state)


@MODELS.register_module()
class MMConvNeXt(_MapNet):
    """mmpretrain's ConvNeXt."""

    mirrors = (('mmpretrain', 'ConvNeXt'),)
    has_output_layers = True

    @staticmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        return list(net.stages)

    @staticmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        stem = net.downsample_layers[0].modules()
        stride = next(m.stride[0] for m in stem if isinstance(m, nn.Conv2d))
        return list(net.channels), [stride * 2**s for s in range(len(net.channels))]

    def embed(self, images: Tensor) -> TokenState:
        return TokenState.of_map(self.net.downsample_layers[0](images))

    def enter_stage(self, state: TokenState, stage: int) -> TokenState:
        return TokenState.of_map(self.net.downsample_layers[stage](_map_of(state)))

    def output_at(self, state: TokenState, place: int) -> Tensor:
        net, x = self.net, _map_of(state)
        norm = getattr(net, f'norm{net.out_indices[place]}')
        if net.gap_before_final_norm:
            return norm(x.mean([-2, -1], keepdim=True)).flatten(1)
        return norm(x)

    def other_levels(self) -> list[tuple[str, int]]:
        between = [
            (f'downsample_layers.{s}.', self.first_block(s) + 1)
            for s in range(1, len(self.net.stages))
        ]
        return [*between, *super().other_levels()]


@MODELS.register_module()
class MMMiT(MMAnchor):
    """mmsegmentation's MiT, the backbone of SegFormer."""

    mirrors = (('mmseg', 'MixVisionTransformer'),)
    has_output_layers = True

    @staticmethod
    def stages_of(net: nn.Module) -> list[Sequence[nn.Module]]:
        return [layer[1] for layer in net.layers]

    @staticmethod
    def scales_of(net: nn.Module) -> tuple[list[int], list[int]]:
        projections = [layer[0].projection for layer in net.layers]
        strides = [p.stride[0] for p in projections]
        dims = [p.out_channels for p in projections]
        return dims, [prod(strides[: s + 1]) for s in range(len(dims))]

    def embed(self, images: Tensor) -> TokenState:
        x, grid = self.net.layers[0][0](images)
        return TokenState(x, tuple(grid))

    def enter_stage(self, state: TokenState, stage: int) -> TokenState:
        x, grid = self.net.layers[stage][0](self._map_after(state, stage - 1))
        return TokenState(x, tuple(grid))

    def output_at(self, state: TokenState, place: int) -> Tensor:
        return self._map_after(state, self.net.out_indices[place])

    def _map_after(self, state: TokenState, stage: int) -> Tensor:
        from mmseg.models.utils import nlc_to_nchw

        return nlc_to_nchw(self.net.layers[stage][2](state.tokens), state.grid)

    def other_levels(self) -> list[tuple[str, int]]:
        numbers = range(len(self.net.layers))
        firsts = [self.first_block(s) + 1 for s in numbers]
        into = [(f'layers.{s}.0.', firsts[s] if s else 0) for s in numbers]
        lasts = [*(first - 1 for first in firsts[1:]), self.depth]
        return [*into, *((f'layers.{s}.2.', lasts[s]) for s in numbers)]


def _map_of(state: TokenState) -> Tensor:
    # Contiguous like the network's own maps, so that outputs are equal bit for bit.
    return state.as_map().contiguous()


def _resized_positions(net: nn.Module, table: Tensor, grid: tuple) -> Tensor:
    """Resample a position embedding of mmpretrain to a grid of patches."""
    from mmpretrain.models.utils import resize_pos_embed

    sizes = net.patch_resolution, grid, net.interpolate_mode, net.num_extra_tokens
    return resize_pos_embed(table, *sizes)


FAMILIES = MMSegViT, MMPretrainViT, MMSwin, MMResNet, MMConvNeXt, MMMiT


def mm_family(net: nn.Module) -> type[MMAnchor]:
    """Return the anchor class that mirrors the ``forward`` of a backbone.

    Raises:
        ValueError: If there is none; the message lists the supported backbones.
    """
    owner = next(c for c in type(net).__mro__ if 'forward' in vars(c))
    package = owner.__module__.partition('.')[0]
    for family in FAMILIES:
        if (package, owner.__name__) in family.mirrors:
            return family
    known = sorted({f'{p}.{name}' for f in FAMILIES for p, name in f.mirrors})
    allowed = f'an anchor of snnet_mm, or one with the forward of: {", ".join(known)}'
    raise refusal('model.backbone.type', type(net).__name__, allowed)


def is_known(net: nn.Module) -> bool:
    """Return whether :func:`mm_family` supports a backbone."""
    try:
        return bool(mm_family(net))
    except ValueError:
        return False
