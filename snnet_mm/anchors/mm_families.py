"""Backbones of mmseg, mmdet and mmpretrain that run block by block."""

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snnet_mm.utils import check

from .base import TokenState
from .blockwise import (
    NetworkFamily,
    map_of,
    register_family,
    run_on_map,
    run_with_grid,
)
from .branches import MLP, Attention, BranchKinds, ConvNeXtMLP
from .position import Grid
from .windows import Windows

Stages = list[Sequence[nn.Module]]
Scales = tuple[list[int], list[int]]
PACKAGES = 'mmseg', 'mmdet', 'mmpretrain'


def _vit_scales(net: nn.Module) -> Scales:
    projection = net.patch_embed.projection
    return [projection.out_channels], [projection.stride[0]]


def _embed_mmseg_vit(net: nn.Module, images: Tensor) -> TokenState:
    x, grid = net.patch_embed(images)
    x = torch.cat((net.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
    if hasattr(net, '_pos_embeding'):  # the ViT
        x = net._pos_embeding(x, grid, net.pos_embed)
        x = x if net.with_cls_token else x[:, 1:]
        x = net.pre_ln(x) if net.pre_norm else x
    elif hasattr(net, 'pos_embed'):  # MAE, for images of one size
        x = x + net.pos_embed
    return TokenState(x, tuple(grid))


def _mmseg_vit_output(
    net: nn.Module, state: TokenState, place: int
) -> Tensor | list[Tensor]:
    out, with_cls = map_of(state), getattr(net, 'output_cls_token', False)
    return [out, state.tokens[:, 0]] if with_cls else out


def _embed_mmpretrain_vit(net: nn.Module, images: Tensor) -> TokenState:
    x, grid = net.patch_embed(images)
    table = net.pos_embed
    # DeiT3's positions have no row for the cls token, which follows them.
    of_patches = table is not None and table.shape[1] == prod(net.patch_resolution)
    if of_patches:
        x = net.drop_after_pos(x + _resized_positions(net, table, grid))
    prefix = (token.expand(x.shape[0], -1, -1) for token in _prefix_of(net))
    x = torch.cat((*prefix, x), dim=1)
    if not of_patches:
        x = x if table is None else x + _resized_positions(net, table, grid)
        x = net.drop_after_pos(x)
    if hasattr(net, 'pre_norm'):
        x = net.pre_norm(x)
    return TokenState(x, tuple(grid))


def _prefix_of(net: nn.Module) -> list[Tensor]:
    """Return the cls token of mmpretrain's ViTs, and that of a distilled DeiT."""
    tokens = net.cls_token, getattr(net, 'dist_token', None)
    return [token for token in tokens if token is not None]


def _run_mmpretrain_vit(
    net: nn.Module, block: nn.Module, state: TokenState
) -> TokenState:
    if hasattr(net, 'rope'):  # of EVA02, whose angles follow the grid
        return run_with_grid(net, block, state)
    if not hasattr(net, 'rel_pos_bias'):
        return state.mapped(block)
    shared = net.rel_pos_bias
    bias = shared() if shared is not None else None
    return state._replace(tokens=block(state.tokens, bias))


def _mmpretrain_vit_output_modules(net: nn.Module) -> list[nn.Module]:
    return [net.ln2] if net.out_type == 'avg_featmap' else []


def _mmpretrain_vit_branches(net: nn.Module) -> BranchKinds:
    if getattr(net, 'rel_pos_bias', None) is not None:
        return {}  # a bias that all blocks share belongs to none of their branches
    return {
        'mmpretrain.TransformerEncoderLayer': (MMPretrainAttention, FFN),
        'mmpretrain.BEiTTransformerEncoderLayer': (BEiTAttention, BEiTFFN),
        'mmpretrain.DeiT3TransformerEncoderLayer': (DeiT3Attention, DeiT3FFN),
        'mmpretrain.EVA02EndcoderLayer': (EVA02Attention, EVA02MLP),
    }


def _swin_stages(net: nn.Module) -> Stages:
    value = getattr(net, 'out_after_downsample', False)
    check(not value, 'backbone.out_after_downsample', value, 'False')
    return [stage.blocks for stage in net.stages]


def _swin_scales(net: nn.Module) -> Scales:
    stride = net.patch_embed.projection.stride[0]
    return list(net.num_features), [stride * 2**s for s in range(len(net.stages))]


def _embed_swin(net: nn.Module, images: Tensor) -> TokenState:
    x, grid = net.patch_embed(images)
    if net.use_abs_pos_embed and hasattr(net, 'num_extra_tokens'):  # mmpretrain
        x = x + _resized_positions(net, net.absolute_pos_embed, grid)
    elif net.use_abs_pos_embed:
        x = x + net.absolute_pos_embed
    return TokenState(net.drop_after_pos(x), tuple(grid))


def _norms_of_maps(net: nn.Module) -> list[nn.Module]:
    return [getattr(net, f'norm{stage}') for stage in net.out_indices]


def _swin_output(net: nn.Module, state: TokenState, place: int) -> Tensor:
    return map_of(state.mapped(_norms_of_maps(net)[place]))


def _resnet_scales(net: nn.Module) -> Scales:
    last = [getattr(net, name)[-1] for name in net.res_layers]
    dims = [getattr(b, 'conv3', b.conv2).out_channels for b in last]
    return dims, [4 * prod(net.strides[: s + 1]) for s in range(len(dims))]


def _embed_resnet(net: nn.Module, images: Tensor) -> TokenState:
    stem = net.stem if net.deep_stem else lambda x: net.relu(net.norm1(net.conv1(x)))
    return TokenState.of_map(net.maxpool(stem(images)))


def _convnext_scales(net: nn.Module) -> Scales:
    stem = net.downsample_layers[0].modules()
    stride = next(m.stride[0] for m in stem if isinstance(m, nn.Conv2d))
    return list(net.channels), [stride * 2**s for s in range(len(net.channels))]


def _convnext_output(net: nn.Module, state: TokenState, place: int) -> Tensor:
    x, norm = map_of(state), _norms_of_maps(net)[place]
    if net.gap_before_final_norm:
        return norm(x.mean([-2, -1], keepdim=True)).flatten(1)
    return norm(x)


def _scales_of(embeddings: Sequence[nn.Module]) -> Scales:
    """Return the scales after the patch embeddings of all stages."""
    strides = [e.projection.stride[0] for e in embeddings]
    dims = [e.projection.out_channels for e in embeddings]
    return dims, [prod(strides[: s + 1]) for s in range(len(dims))]


def _mit_map(net: nn.Module, state: TokenState, stage: int) -> Tensor:
    # Not contiguous, like the network's own.
    return state.mapped(net.layers[stage][2]).as_map()


def _van_parts(net: nn.Module, name: str) -> list[nn.Module]:
    return [getattr(net, f'{name}{stage + 1}') for stage in range(net.num_stages)]


def _embed_van(net: nn.Module, x: Tensor, stage: int) -> TokenState:
    return TokenState.of_map(_van_parts(net, 'patch_embed')[stage](x)[0])


def _van_map(net: nn.Module, state: TokenState, stage: int) -> Tensor:
    return map_of(state.mapped(_van_parts(net, 'norm')[stage]))


def _resized_positions(net: nn.Module, table: Tensor, grid: tuple) -> Tensor:
    """Resample a position embedding of mmpretrain to a grid of patches."""
    from mmpretrain.models.utils import resize_pos_embed

    others = table.shape[1] - prod(net.patch_resolution)  # rows of no patch
    sizes = net.patch_resolution, grid, net.interpolate_mode, others
    return resize_pos_embed(table, *sizes)


def _of_patches(embedded: tuple[Tensor, Sequence[int]]) -> TokenState:
    """Return the state of tokens and their grid, as patch embeddings return them."""
    x, grid = embedded
    return TokenState(x, tuple(grid))


class FFN(MLP):
    """The ``FFN`` of mmcv, which adds its input itself."""

    mlp = 'ffn'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ffn(self.enter(x, grid), identity=x)


class MMSegAttention(Attention):
    """Attention of mmseg's ViT, torch's own."""

    attn, qkv, proj = 'attn.attn', ('in_proj_',), 'out_proj'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.attn(self.block.norm1(x), identity=x)


class MMPretrainAttention(Attention):
    """Attention of mmpretrain's ViT."""

    outputs = ('attn.gamma1',)

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return x + self.block.attn(self.enter(x))

    def fits(self) -> bool:
        return not self.heads_of.v_shortcut


class DeiT3Attention(MMPretrainAttention):
    """Attention of DeiT3 in mmpretrain, whose blocks use their first norm twice."""

    parts = ('attn',)

    def enter(self, x: Tensor) -> Tensor:
        return self.block.ln1(x)


class DeiT3FFN(FFN):
    """MLP of DeiT3 in mmpretrain, after the norm of the attention."""

    def enter(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ln1(x)


class BEiTAttention(Attention):
    """Attention of BEiT in mmseg and mmpretrain, and of mmseg's MAE."""

    table = 'relative_position_bias_table'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return _scaled(self.block, x, self.block.attn(self.block.norm1(x)), 'gamma_1')


class BEiTFFN(FFN):
    """MLP of BEiT in mmseg and mmpretrain, and of mmseg's MAE."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return _scaled(self.block, x, self.block.ffn(self.block.norm2(x)), 'gamma_2')

    def fits(self) -> bool:
        return not self.block.ffn.add_identity


class SwinAttention(Attention):
    """Attention of Swin in mmseg, mmdet and mmpretrain."""

    attn, table = 'attn.w_msa', 'relative_position_bias_table'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.attn(self.block.norm1(x), grid) + x

    def windows(self, grid: Grid) -> Windows:
        attn, side = self.block.attn, self.block.attn.window_size
        # mmpretrain does not shift a single window.
        single = min(grid) == side and not getattr(attn, 'pad_small_map', True)
        return Windows((side,) * 2, (0 if single else attn.shift_size,) * 2)


class MiTAttention(MMSegAttention):
    """Attention of MiT, torch's own; keys and values have fewer tokens."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.attn(self.block.norm1(x), grid, identity=x)

    def keys(self, normed: Tensor, grid: Grid) -> Tensor:
        attn = self.block.attn
        if attn.sr_ratio == 1:
            return normed
        reduced = attn.sr(normed.transpose(1, 2).unflatten(2, grid))
        return attn.norm(reduced.flatten(2).transpose(1, 2))


class MixFFN(MLP):
    """MLP of MiT, with a depthwise convolution."""

    mlp = 'ffn'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ffn(self.block.norm2(x), grid, identity=x)

    def leave(self, h: Tensor, grid: Grid, *follows: Tensor | None) -> Tensor:
        h = h.transpose(1, 2).unflatten(2, grid)
        h = F.conv2d(h, *follows, padding='same', groups=h.shape[1])
        return super().leave(h.flatten(2).transpose(1, 2), grid)


class MMConvNeXtMLP(ConvNeXtMLP):
    """A block of mmpretrain's ConvNeXt."""

    mlp, conv = '', 'depthwise_conv'
    parts = ('depthwise_conv', 'norm', 'pointwise_conv1', 'grn', 'pointwise_conv2')
    parts, outputs = (*parts, 'gamma'), ('gamma',)

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return run_on_map(None, self.block, TokenState(x, grid)).tokens

    def normed(self, x: Tensor) -> Tensor:
        x = self.block.norm(x, data_format='channel_first')
        return TokenState.of_map(x).tokens


class EVA02Attention(Attention):
    """Attention of mmpretrain's EVA-02, with rotary positions."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        b = self.block
        return x + b.drop_path(b.attn(b.norm1(x), grid))

    def rotated(self, x: Tensor, grid: Grid) -> Tensor:
        number = int(self.heads_of.with_cls_token)
        patches = self.heads_of.rope(x[:, :, number:], grid)
        return torch.cat((x[:, :, :number], patches), 2).type_as(x)


class EVA02MLP(MLP):
    """MLP of mmpretrain's EVA-02, which is gated."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        b = self.block
        return x + b.drop_path(b.mlp(b.norm2(x)))


def _scaled(block: nn.Module, x: Tensor, branch: Tensor, gamma: str) -> Tensor:
    factor = getattr(block, gamma)
    return x + block.drop_path(branch if factor is None else factor * branch)


for _family in (
    NetworkFamily(
        'MMSegViT',
        ('mmseg.VisionTransformer', 'mmseg.BEiT', 'mmseg.MAE'),
        stages=lambda net: [net.layers],
        scales=_vit_scales,
        embed=_embed_mmseg_vit,
        run=lambda net, block, state: state.mapped(block),
        norm=lambda net: net.norm1 if net.final_norm else None,
        output=_mmseg_vit_output,
        num_prefix=lambda net: int(getattr(net, 'with_cls_token', True)),
        outputs_prefix=lambda net: getattr(net, 'output_cls_token', False),
        branches=lambda net: {
            'mmseg.TransformerEncoderLayer': (MMSegAttention, FFN),
            'mmseg.BEiTTransformerEncoderLayer': (BEiTAttention, BEiTFFN),
        },
        by_block=True,
    ),
    NetworkFamily(
        'MMPretrainViT',  # whose ``out_type`` selects its outputs
        (
            'mmpretrain.VisionTransformer',
            'mmpretrain.DistilledVisionTransformer',
            'mmpretrain.DeiT3',
            'mmpretrain.BEiTViT',
            'mmpretrain.ViTEVA02',
        ),
        stages=lambda net: [net.layers],
        scales=_vit_scales,
        embed=_embed_mmpretrain_vit,
        run=_run_mmpretrain_vit,
        norm=lambda net: net.ln1 if net.final_norm else None,
        output=lambda net, state, place: net._format_output(*state),
        num_prefix=lambda net: len(_prefix_of(net)),
        outputs_prefix=lambda net: net.out_type in ('cls_token', 'raw'),
        output_modules=_mmpretrain_vit_output_modules,
        branches=_mmpretrain_vit_branches,
        by_block=True,
    ),
    NetworkFamily(
        'MMSwin',
        tuple(f'{p}.SwinTransformer' for p in PACKAGES),
        stages=_swin_stages,
        scales=_swin_scales,
        embed=_embed_swin,
        enter=lambda net, state, stage: _of_patches(
            net.stages[stage - 1].downsample(*state)
        ),
        output=_swin_output,
        branches=lambda net: {f'{p}.SwinBlock': (SwinAttention, FFN) for p in PACKAGES},
        has_output_layers=True,
        enter_modules=lambda net, stage: [net.stages[stage - 1].downsample],
        output_modules=_norms_of_maps,
    ),
    NetworkFamily(
        'MMResNet',  # and its variants
        tuple(f'{p}.ResNet' for p in PACKAGES),
        stages=lambda net: [getattr(net, name) for name in net.res_layers],
        scales=_resnet_scales,
        embed=_embed_resnet,
        run=run_on_map,
        output=lambda net, state, place: map_of(state),
    ),
    NetworkFamily(
        'MMConvNeXt',
        ('mmpretrain.ConvNeXt',),
        stages=lambda net: list(net.stages),
        scales=_convnext_scales,
        embed=lambda net, images: TokenState.of_map(net.downsample_layers[0](images)),
        enter=lambda net, state, stage: run_on_map(
            net, net.downsample_layers[stage], state
        ),
        run=run_on_map,
        output=_convnext_output,
        branches=lambda net: {'mmpretrain.ConvNeXtBlock': (MMConvNeXtMLP,)},
        has_output_layers=True,
        enter_modules=lambda net, stage: [net.downsample_layers[stage]],
        output_modules=_norms_of_maps,
    ),
    NetworkFamily(
        'MMMiT',  # the backbone of SegFormer
        ('mmseg.MixVisionTransformer',),
        stages=lambda net: [layer[1] for layer in net.layers],
        scales=lambda net: _scales_of([layer[0] for layer in net.layers]),
        embed=lambda net, images: _of_patches(net.layers[0][0](images)),
        enter=lambda net, state, stage: _of_patches(
            net.layers[stage][0](_mit_map(net, state, stage - 1))
        ),
        output=lambda net, state, place: _mit_map(net, state, net.out_indices[place]),
        branches=lambda net: {'mmseg.TransformerEncoderLayer': (MiTAttention, MixFFN)},
        has_output_layers=True,
        enter_modules=lambda net, stage: [net.layers[stage][0]],
        leave_modules=lambda net, stage: [net.layers[stage][2]],
    ),
    NetworkFamily(
        'MMVAN',
        ('mmpretrain.VAN',),
        stages=lambda net: _van_parts(net, 'blocks'),
        scales=lambda net: _scales_of(_van_parts(net, 'patch_embed')),
        embed=lambda net, images: _embed_van(net, images, 0),
        enter=lambda net, state, stage: _embed_van(
            net, _van_map(net, state, stage - 1), stage
        ),
        run=run_on_map,
        output=lambda net, state, place: _van_map(net, state, net.out_indices[place]),
        has_output_layers=True,
        enter_modules=lambda net, stage: [_van_parts(net, 'patch_embed')[stage]],
        leave_modules=lambda net, stage: [_van_parts(net, 'norm')[stage]],
    ),
):
    register_family(_family)
