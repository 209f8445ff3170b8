"""The plain ViT as an anchor."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, is_number, is_whole

from .base import TokenAnchor
from .branches import MLP, AttentionBranch
from .checkpoint_filters import (
    cut_blocks,
    fit_bias_tables,
    fit_offsets,
    fit_pos_embed,
    to_our_names,
)
from .position import (
    DecomposedRelPosBias,
    Grid,
    RelativePositionBias,
    add_positions,
    gather_bias,
    grid_of,
)
from .pretrained import Weights, check_registers
from .vit_block import Block
from .windows import Windows

# Width, depth and heads.
ARCHITECTURES = {
    'tiny': (192, 12, 3),
    'small': (384, 12, 6),
    'base': (768, 12, 12),
    'large': (1024, 24, 16),
    'huge': (1280, 32, 16),
}


class PlainAttention(AttentionBranch):
    """Attention of :class:`PlainViT`."""

    table = 'rel_pos_bias.table'

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.attend(x, grid)

    def windows(self, grid: Grid) -> Windows | None:
        return self.block.windows

    def bias_of(self, table: Tensor, grid: Grid) -> Tensor:
        module: RelativePositionBias = self.heads_of.rel_pos_bias
        return gather_bias(table, module.grid, grid, module.num_prefix)

    def scores(
        self, grid: Grid, q: Tensor, order: Tensor | None, units: int
    ) -> Tensor | None:
        if isinstance(self.heads_of.rel_pos_bias, DecomposedRelPosBias):
            return self.heads_of.rel_pos_bias(grid, q)  # equal for all heads
        return super().scores(grid, q, order, units)


class PlainMLP(MLP):
    """MLP of :class:`PlainViT`."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return self.block.feed(x)

    def fits(self) -> bool:
        return not self.block.mlp_shortcut


@MODELS.register_module()
class PlainViT(TokenAnchor):
    """A plain (isotropic) vision transformer: an anchor or a standalone backbone.

    The defaults are DeiT3's. Parameters have timm's names.

    Args:
        arch: ``'tiny'``, ``'small'``, ``'base'``, ``'large'``, ``'huge'``, or a dict
            with ``embed_dims``, ``depth``, ``num_heads`` and ``mlp_ratio`` (default 4).
        img_size: Image side in pixels, or height and width, of the position embedding,
            which is resampled for other sizes. Default: 224.
        in_channels: Channels of the images. Default: 3.
        pos_embed_prefix: Whether the position embedding covers prefix tokens (ViT) or
            patches alone (DeiT3).
        pos_embed_antialias: Whether to resample positions with antialiasing, on loading
            and for images of other sizes. Default: False, as in mmsegmentation,
            detectron2 and the authors' code; timm resamples with antialiasing.
        layer_scale_init: Initial value of LayerScale; None for no LayerScale. With 1,
            weights without LayerScale are loaded, too.
        window_size: Side of ViTDet's attention windows in patches; 0 for global
            attention. Windows require 0 prefix tokens.
        global_blocks: Blocks with global attention despite ``window_size``.
        decomposed_rel_pos: Whether to use ViTDet's relative position embeddings.
        mlp_shortcut: Whether the feed-forward branch adds its normalised input, as in
            the authors' depth model (with ``norm_eps=1e-5``).
        adapter: ``width`` and ``parallel`` (default: False) of the :class:`AdaptedMLP`
            of every block; only adapters are then trained. Excludes ``lora``.
        **kwargs: See :class:`TokenAnchor`. An ``init_cfg`` of type ``'Pretrained'``
            accepts ``checkpoint``, ``prefix``, ``img_size`` and ``blocks``; see
            :meth:`adapt_weights`.
    """

    biased_layers = 'attn.qkv', 'attn.proj'
    branch_kinds = {'snnet_mm.Block': (PlainAttention, PlainMLP)}
    # Keys of every block, and the embedding, to verify depth and kind of the network.
    strict_keys = r'blocks\.\d+\.(norm1\.weight|ls1\.gamma)|patch_embed\.proj'

    def __init__(
        self,
        arch: str | dict = 'small',
        img_size: int | Sequence[int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        cls_token: bool = True,
        num_registers: int = 0,
        abs_pos_embed: bool = True,
        pos_embed_prefix: bool = False,
        pos_embed_antialias: bool = False,
        qkv_bias: bool = True,
        layer_scale_init: float | None = 1e-6,
        rel_pos_bias: bool = False,
        window_size: int = 0,
        global_blocks: Sequence[int] = (),
        decomposed_rel_pos: bool = False,
        mlp_shortcut: bool = False,
        adapter: Mapping | None = None,
        final_norm: bool = False,
        norm_eps: float = 1e-6,
        **kwargs,
    ) -> None:
        dim, depth, num_heads, mlp_ratio = _read_arch(arch)
        sides = img_size if isinstance(img_size, Sequence) else (img_size, img_size)
        right = len(sides) == 2 and all(is_whole(side, patch_size) for side in sides)
        expected = f'one or two lengths in pixels, each at least {patch_size} (a patch)'
        check(right, 'img_size', img_size, expected)
        prefix = int(cls_token) + num_registers, cls_token
        super().__init__(dim, depth, patch_size, *prefix, **kwargs)
        self.grid = grid_of(img_size, patch_size)
        self.pos_embed_antialias = pos_embed_antialias
        self._layer_scale_init = layer_scale_init
        expected = f'blocks 0 to {depth - 1}, or none if window_size is 0'
        right = all(0 <= i < depth and window_size for i in global_blocks)
        check(right, 'global_blocks', tuple(global_blocks), expected)
        exclusive = not (window_size or decomposed_rel_pos)
        expected = 'none with window_size or decomposed_rel_pos'
        right = exclusive or not self.num_prefix
        check(right, 'cls_token, num_registers', self.num_prefix, expected)
        check(exclusive or not rel_pos_bias, 'rel_pos_bias', rel_pos_bias, expected)
        check(is_whole(in_channels, 1), 'in_channels', in_channels, '1 or more')
        proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)
        self.patch_embed = nn.Sequential(OrderedDict(proj=proj))
        embedded = self.num_prefix if pos_embed_prefix else 0
        length = self.grid[0] * self.grid[1] + embedded
        numbers = dict(cls_token=int(cls_token), reg_token=num_registers)
        numbers['pos_embed'] = length if abs_pos_embed else 0
        for name, number in numbers.items():
            zeros = torch.zeros(1, number, dim)
            self.register_parameter(name, nn.Parameter(zeros) if number else None)
        settings = dict(mlp_ratio=mlp_ratio, qkv_bias=qkv_bias, norm_eps=norm_eps)
        settings |= dict(layer_scale_init=layer_scale_init, mlp_shortcut=mlp_shortcut)
        self._adapter = settings['adapter'] = adapter
        if adapter is not None:
            right = is_whole(adapter.get('width'), 1) and kwargs.get('lora') is None
            right = right and {*adapter} <= {'width', 'parallel'}
            expected = 'a dict with width (1 or more) and parallel, without lora'
            check(right, 'adapter', dict(adapter), expected)
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(depth))
        for i in sorted(self.kept_blocks):
            window, bias = 0 if i in global_blocks else window_size, None
            if rel_pos_bias:
                bias = RelativePositionBias(self.grid, num_heads, self.num_prefix)
            elif decomposed_rel_pos:
                grid = (window, window) if window else self.grid
                bias = DecomposedRelPosBias(grid, dim // num_heads)
            rate = self.drop_path_rates[i]
            self.blocks[i] = Block(dim, num_heads, rate, bias, window, **settings)
        self.norm = nn.LayerNorm(dim, eps=norm_eps) if final_norm else nn.Identity()
        self._randomise()
        self.drop_unused()
        self.freeze()

    def adapt_weights(
        self,
        weights: Weights,
        img_size: int | Sequence[int] | None = None,
        blocks: tuple[int, int] | None = None,
    ) -> Weights:
        """Rename weights of any family and resize those that depend on the grid.

        ``img_size``: image size of the checkpoint's position embedding; required unless
        its grid is square or the anchor's own. ``blocks``: first and end of the range
        of checkpoint blocks to load, for a network that was cut. Default: all.
        """
        own, weights = self.state_dict(), to_our_names(weights)
        check_registers(weights, self.num_prefix - self.has_cls, 'num_registers')
        if blocks is not None:
            weights = cut_blocks(weights, blocks, self.depth)
        if 'norm.weight' not in own:
            # Without final_norm, the norm in the checkpoint is the classifier's.
            weights = {k: v for k, v in weights.items() if not k.startswith('norm.')}
        if self._layer_scale_init == 1:  # exact for weights without LayerScale
            scales = {k: torch.ones_like(v) for k, v in own.items() if '.ls' in k}
            weights = scales | weights
        grid = None if img_size is None else grid_of(img_size, self.patch_size)
        if 'pos_embed' in own and 'pos_embed' in weights:
            num_entries = self.num_embedded_prefix
            weights = fit_pos_embed(
                weights, self.grid, num_entries, grid, self.pos_embed_antialias
            )
        elif 'pos_embed' in own and any('rel_pos_bias.table' in k for k in weights):
            # BEiT has no absolute positions: zeros are exact, random values are not.
            weights['pos_embed'] = torch.zeros_like(own['pos_embed'])
        if any('rel_pos_bias.table' in k for k in own):
            weights = fit_bias_tables(weights, self.grid, self.num_prefix, grid)
        return fit_offsets(weights, own)

    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        prefix = self.cls_token, self.reg_token
        return add_positions(patches, self.positions(grid), *prefix)

    def run_layers(
        self, i: int, tokens: Tensor, grid: Grid, mask: Tensor | None = None
    ) -> Tensor:
        return self.blocks[i](tokens, grid, mask)

    @property
    def takes_masks(self) -> bool:
        return all(block.attn.rel_pos_bias is None for block in self.blocks)

    def freeze(self) -> None:
        if self._adapter is not None:
            for name, parameter in self.named_parameters():
                parameter.requires_grad = '.adapter.' in name
        super().freeze()

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        super().fix_input_size(size)
        for block in self.blocks:
            bias = getattr(getattr(block, 'attn', None), 'rel_pos_bias', None)
            if bias is not None and block.windows is None:
                bias.fix_grid(self.grid)

    def _randomise(self) -> None:
        """Initialise weights as DeiT and timm do: truncated normal, std 0.02."""
        for name, parameter in self.named_parameters():
            if '.rel_pos_bias.' in name or '.adapter.' in name:
                continue  # initialised by its own module
            in_block = name.startswith('blocks')
            matrix = in_block and parameter.ndim == 2
            if matrix or name.endswith(('embed', 'token')):
                nn.init.trunc_normal_(parameter, std=0.02)
            elif in_block and name.endswith('bias'):
                nn.init.zeros_(parameter)


def _read_arch(arch: str | dict) -> tuple[int, int, int, float]:
    if isinstance(arch, str):
        check(arch in ARCHITECTURES, 'arch', arch, ARCHITECTURES)
        return *ARCHITECTURES[arch], 4
    needed = ('embed_dims', 'depth', 'num_heads')
    known = isinstance(arch, Mapping) and {*needed} <= {*arch} <= {*needed, 'mlp_ratio'}
    expected = f'a name, or a dict of {needed}, whole numbers with embed_dims '
    expected += 'divisible by num_heads, and mlp_ratio > 0'
    check(known, 'arch', arch, expected)
    (width, depth, heads), ratio = (arch[k] for k in needed), arch.get('mlp_ratio', 4)
    right = all(is_whole(n, 1) for n in (width, depth, heads)) and is_number(ratio)
    check(right and ratio > 0 and width % heads == 0, 'arch', dict(arch), expected)
    return width, depth, heads, ratio
