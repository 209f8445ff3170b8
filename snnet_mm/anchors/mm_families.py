"""Backbones of mmseg, mmdet and mmpretrain that run block by block."""

from collections.abc import Callable, Sequence
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
from .branches import LAYOUTS, MLP, AttentionBranch, BranchKinds, ConvNeXtMLP, Layout
from .position import DecomposedRelPosBias, Grid
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


def _pyramid(
    name: str,
    mirrors: tuple[str, ...],
    stages: Callable[[nn.Module], Stages],
    embeddings: Callable[[nn.Module, int], Sequence[nn.Module]],
    norm: Callable[[nn.Module, int], nn.Module | None],
    embed: Callable[[nn.Module, int, Tensor], tuple] | None = None,
    as_map: Callable[[TokenState], Tensor] = map_of,
    **fields,
) -> NetworkFamily:
    """Return the family of networks whose stages embed a map, run blocks and a norm.

    ``embeddings`` and ``norm`` return these modules of a stage; ``embed`` returns
    tokens and their grid, by default those of the only embedding.
    """
    embed = embed or (lambda net, stage, x: embeddings(net, stage)[0](x))

    def scales(net: nn.Module) -> Scales:
        convs = [
            [m for m in embeddings(net, s)[0].modules() if isinstance(m, nn.Conv2d)]
            for s in range(len(stages(net)))
        ]
        strides = [prod(conv.stride[0] for conv in each) for each in convs]
        dims = [each[-1].out_channels for each in convs]
        return dims, [prod(strides[: s + 1]) for s in range(len(dims))]

    def map_after(net: nn.Module, state: TokenState, stage: int) -> Tensor:
        layer = norm(net, stage)
        return as_map(state if layer is None else state.mapped(layer))

    def output(net: nn.Module, state: TokenState, place: int) -> Tensor:
        indices = getattr(net, 'out_indices', range(len(stages(net))))
        return map_after(net, state, indices[place])

    return NetworkFamily(
        name,
        mirrors,
        stages=stages,
        scales=scales,
        embed=lambda net, images: _of_patches(embed(net, 0, images)),
        enter=lambda net, state, stage: _of_patches(
            embed(net, stage, map_after(net, state, stage - 1))
        ),
        output=output,
        has_output_layers=True,
        enter_modules=embeddings,
        leave_modules=lambda net, stage: [norm(net, stage)],
        **fields,
    )


def _of_patches(embedded: tuple) -> TokenState:
    """Return the state of tokens or a map, and the grid, as embeddings return them."""
    x, *grid = embedded
    if x.ndim == 4:
        return TokenState.of_map(x)
    return TokenState(x, tuple(grid[0] if len(grid) == 1 else grid))


def _of_stages(name: str) -> Callable[[nn.Module], list[nn.Module]]:
    """Return the function that lists the parts ``name1``, ``name2``, ... of a net."""
    return lambda net: [getattr(net, f'{name}{s + 1}') for s in range(net.num_stages)]


def _embed_pvt(net: nn.Module, stage: int, x: Tensor) -> tuple:
    patch_embed, *positions = _pvt_embeddings(net, stage)
    x, grid = patch_embed(x)
    for add in positions:
        x = add(x, grid)
    return x, grid


def _pvt_embeddings(net: nn.Module, stage: int) -> list[nn.Module]:
    patch_embed, (first, *_), _ = net.layers[stage]
    return [patch_embed, first] if hasattr(first, 'pos_embed') else [patch_embed]


def _pvt_stages(net: nn.Module) -> Stages:
    return [
        [block for block in layer[1] if not hasattr(block, 'pos_embed')]
        for layer in net.layers
    ]


def _pvt_branches(net: nn.Module) -> BranchKinds:
    mixes = len(net.layers[0][1][-1].ffn.layers) == 6
    return {'mmdet.PVTEncoderLayer': (MiTAttention, PVTMixFFN if mixes else ConvFFN)}


def _twins_stages(net: nn.Module) -> Stages:
    return list(net.stages if hasattr(net, 'stages') else net.layers)  # of mmseg


def _embed_twins(net: nn.Module, stage: int, x: Tensor) -> tuple:
    x, grid = net.patch_embeds[stage](x)
    return net.position_encoding_drops[stage](x), grid


def _run_twins(net: nn.Module, block: nn.Module, state: TokenState) -> TokenState:
    state = run_with_grid(net, block, state)
    for stage, encode in enumerate(net.position_encodings):
        if block is _twins_stages(net)[stage][0]:
            return state._replace(tokens=encode(*state))
    return state


def _twins_norm(net: nn.Module, stage: int) -> nn.Module | None:
    if hasattr(net, 'norm_list'):  # of mmseg
        return net.norm_list[stage]
    return getattr(net, f'norm_after_stage{stage}', None)


def _embed_vit_sam(net: nn.Module, images: Tensor) -> TokenState:
    x, grid = net.patch_embed(images)
    if net.use_abs_pos:
        table = net.pos_embed.flatten(1, 2)
        x = net.drop_after_pos(x + _resized_positions(net, table, grid))
    return TokenState(x, tuple(grid))


def _run_on_nhwc(net: nn.Module, block: nn.Module, state: TokenState) -> TokenState:
    x = block(state.tokens.unflatten(1, state.grid))
    return state._replace(tokens=x.flatten(1, 2))


def _vit_sam_output(net: nn.Module, state: TokenState, place: int) -> Tensor:
    x = state.as_map()
    x = net.channel_reduction(x) if net.out_channels > 0 else x
    return net._format_output(x)


def _resized_positions(net: nn.Module, table: Tensor, grid: tuple) -> Tensor:
    """Resample a position embedding of mmpretrain to a grid of patches."""
    from mmpretrain.models.utils import resize_pos_embed

    others = table.shape[1] - prod(net.patch_resolution)  # rows of no patch
    sizes = net.patch_resolution, grid, net.interpolate_mode, others
    return resize_pos_embed(table, *sizes)


class FFN(MLP):
    """The ``FFN`` of mmcv, which adds its input itself."""

    mlp = 'ffn'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ffn(self.enter(x, grid), identity=x)


class MMSegAttention(AttentionBranch):
    """Attention of mmseg's ViT, torch's own."""

    attn, qkv, proj = 'attn.attn', ('in_proj_',), 'out_proj'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.attn(self.block.norm1(x), identity=x)


class MMPretrainAttention(AttentionBranch):
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

    layout = LAYOUTS['mmcv.FFN']

    def enter(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ln1(x)


class BEiTAttention(AttentionBranch):
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


class SwinAttention(AttentionBranch):
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


class ConvFFN(MLP):
    """MLP of PVT v1, of 1x1 convolutions."""

    mlp, layout = 'ffn', Layout('layers.0', 'layers.3', 'layers.1')

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.ffn(self.block.norm2(x), grid, identity=x)


class PVTMixFFN(MixFFN):
    """MLP of PVT v2, with a depthwise convolution."""

    layout = LAYOUTS['mmseg.MixFFN']


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


class SAMAttention(AttentionBranch):
    """Attention of mmpretrain's SAM, in windows or of all patches."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        normed, windows, size = self.enter(x), self.windows(grid), grid
        if windows is not None:
            normed, size = windows.split(normed, grid), windows.size
        branch = self.block.attn(normed.unflatten(1, size)).flatten(1, 2)
        return x + (branch if windows is None else windows.merge(branch, grid))

    def windows(self, grid: Grid) -> Windows | None:
        side = self.block.window_size
        return Windows((side, side)) if side else None

    def scores(
        self, grid: Grid, q: Tensor, order: Tensor | None, units: int
    ) -> Tensor | None:
        if not self.heads_of.use_rel_pos:
            return None
        return DecomposedRelPosBias.forward(self.heads_of, grid, q)


class EVA02Attention(AttentionBranch):
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
    _pyramid(
        'MMMiT',  # the backbone of SegFormer
        ('mmseg.MixVisionTransformer',),
        stages=lambda net: [layer[1] for layer in net.layers],
        embeddings=lambda net, stage: [net.layers[stage][0]],
        norm=lambda net, stage: net.layers[stage][2],
        as_map=TokenState.as_map,  # not contiguous, like the network's own
        branches=lambda net: {'mmseg.TransformerEncoderLayer': (MiTAttention, MixFFN)},
    ),
    _pyramid(
        'MMVAN',
        ('mmpretrain.VAN',),
        stages=_of_stages('blocks'),
        embeddings=lambda net, stage: [_of_stages('patch_embed')(net)[stage]],
        norm=lambda net, stage: _of_stages('norm')(net)[stage],
        run=run_on_map,
    ),
    _pyramid(
        'MMMSCAN',  # the backbone of SegNeXt
        ('mmseg.MSCAN',),
        stages=_of_stages('block'),
        embeddings=lambda net, stage: [_of_stages('patch_embed')(net)[stage]],
        norm=lambda net, stage: _of_stages('norm')(net)[stage],
        run=lambda net, block, state: state._replace(
            tokens=block(state.tokens, *state.grid)
        ),
    ),
    _pyramid(
        'MMPVT',  # v1 and v2
        ('mmdet.PyramidVisionTransformer',),
        stages=_pvt_stages,
        embeddings=_pvt_embeddings,
        embed=_embed_pvt,
        norm=lambda net, stage: net.layers[stage][2],
        branches=_pvt_branches,
    ),
    _pyramid(
        'MMTwins',  # PCPVT and SVT
        ('mmseg.PCPVT', 'mmpretrain.PCPVT'),
        stages=_twins_stages,
        embeddings=lambda net, stage: [net.patch_embeds[stage]],
        embed=_embed_twins,
        norm=_twins_norm,
        run=_run_twins,
        first_modules=lambda net, stage: [net.position_encodings[stage]],
    ),
    NetworkFamily(
        'MMViTSAM',  # the image encoder of SAM
        ('mmpretrain.ViTSAM',),
        stages=lambda net: [net.layers],
        scales=_vit_scales,
        embed=_embed_vit_sam,
        run=_run_on_nhwc,
        output=_vit_sam_output,
        branches=lambda net: {
            'mmpretrain.TransformerEncoderLayer': (SAMAttention, FFN)
        },
        output_modules=lambda net: (
            [net.channel_reduction] if net.out_channels > 0 else []
        ),
        by_block=True,
    ),
):
    register_family(_family)
