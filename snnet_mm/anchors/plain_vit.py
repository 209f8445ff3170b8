"""The plain ViT as an anchor."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from .base import check_with_cls
from .plain_vit_settings import (
    check_frozen_stages,
    check_held_blocks,
    check_settings,
    read_arch,
    read_lora,
    read_windows,
)
from .position import (
    DecomposedRelPosBias,
    RelativePositionBias,
    grid_of,
    resize_pos_embed,
)
from .pretrained import load_pretrained, pretrained_source
from .token_anchor import TokenAnchor
from .token_state import TokenState
from .vit_block import Block


class PatchEmbed(nn.Module):
    """Images cut into patches, each projected to a token."""

    def __init__(self, patch_size: int, in_channels: int, dim: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """Map ``(B, C, rows, columns)`` of images ``(B, 3, H, W)``.

        The right and lower edge are padded with zeros to whole patches.

        Raises:
            ValueError: If an image is smaller than a patch.
        """
        h, w = images.shape[-2:]
        if min(h, w) < self.patch_size:
            raise ValueError(
                f'images of {h}x{w} pixels are smaller than a patch; allowed is '
                f'{self.patch_size} or more each way (config key: patch_size)'
            )
        pad_h, pad_w = -h % self.patch_size, -w % self.patch_size
        if pad_h or pad_w:
            images = F.pad(images, (0, pad_w, 0, pad_h))
        return self.proj(images)


@MODELS.register_module()
class PlainViT(TokenAnchor):
    """A plain (isotropic) vision transformer: an anchor, or a backbone by itself.

    The defaults are those of DeiT3. Parameters have timm's names.

    Args:
        arch: ``'tiny'``, ``'small'``, ``'base'``, ``'large'``, ``'huge'``, or a dict
            with ``embed_dims``, ``depth``, ``num_heads`` and, if not 4, ``mlp_ratio``.
        img_size: Pixels, or height and width, that the position embedding is for.
            Images of any other size resample it.
        patch_size: Pixels of a patch's side.
        in_channels: Channels of the images.
        out_indices: Blocks whose maps ``forward`` returns.
        with_cls: Whether ``forward`` returns ``(map, cls)`` for each of these blocks.
        out: ``'maps'``, or ``'end'`` for the final state, which is classified.
        cls_token: Whether a cls token comes first.
        num_registers: Register tokens behind the cls token.
        abs_pos_embed: Whether there is a position embedding; BEiT has none.
        pos_embed_prefix: Whether the position embedding has entries for the prefix
            tokens (ViT), or is added before they are put in front (DeiT3).
        pos_embed_antialias: Whether resampling the position embedding antialiases, as
            in timm; the authors' depth model does without.
        qkv_bias: Whether q, k and v have a bias.
        layer_scale_init: Start value of LayerScale; None for no LayerScale.
        rel_pos_bias: Whether each block has BEiT's relative position bias.
        window_size: Rows, and columns, of the windows of patches that attention stays
            in, as in ViTDet; 0 for attention among all tokens. Needs an anchor without
            prefix tokens.
        global_blocks: Blocks that attend among all tokens all the same.
        decomposed_rel_pos: Whether attention has ViTDet's decomposed relative position
            embeddings, zero at first; for anchors without prefix tokens.
        mlp_shortcut: Whether the feed-forward branch of a block adds its own normalised
            input, as in the authors' depth model (with ``norm_eps=1e-5``).
        final_norm: Whether a layer norm belongs to the last block's output.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0.
        norm_eps: Epsilon of the layer norms.
        frozen_stages: -1 trains everything, 0 freezes the embedding, k the embedding
            and the first k blocks, and the depth also the final norm. What is frozen
            has no gradient and stays in eval mode.
        lora: Trains low-rank updates of the attention's linear layers instead of the
            anchor, which is frozen but for them: ``rank``, and if they are not the
            default ``alpha`` (1) and ``targets`` (``('qkv', 'proj')``); see
            :class:`LoRALinear`. Frozen stages have none that train.
        with_cp: Whether blocks are run again in the backward pass instead of keeping
            their activations: less memory, more time, the same gradients.
        held_blocks: Hold only these blocks, under their numbers, for a network that
            runs no others; by default all.
        embedding: Whether the embedding is held.
        init_cfg: mmengine's initialisation config; for ``type='Pretrained'`` with the
            keys ``checkpoint``, ``prefix`` and ``img_size`` see
            :func:`snnet_mm.anchors.pretrained.load_pretrained`.

    Raises:
        ValueError: For an unknown architecture, heads that do not divide the width, an
            out index, frozen stage, global or held block past the depth, ``with_cls``
            without a cls token, windows with prefix tokens, or low-rank updates that
            there cannot be.
    """

    def __init__(
        self,
        arch: str | dict = 'small',
        img_size: int | Sequence[int] = 224,
        patch_size: int = 16,
        in_channels: int = 3,
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        out: str = 'maps',
        cls_token: bool = True,
        num_registers: int = 0,
        abs_pos_embed: bool = True,
        pos_embed_prefix: bool = False,
        pos_embed_antialias: bool = True,
        qkv_bias: bool = True,
        layer_scale_init: float | None = 1e-6,
        rel_pos_bias: bool = False,
        window_size: int = 0,
        global_blocks: Sequence[int] = (),
        decomposed_rel_pos: bool = False,
        mlp_shortcut: bool = False,
        final_norm: bool = False,
        drop_path_rate: float = 0,
        norm_eps: float = 1e-6,
        frozen_stages: int = -1,
        lora: dict | None = None,
        with_cp: bool = False,
        held_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        dim, depth, num_heads, mlp_ratio = read_arch(arch)
        check_settings(
            img_size, patch_size, num_registers, drop_path_rate, layer_scale_init
        )
        dims, strides = [dim] * depth, [patch_size] * depth
        super().__init__(dims, strides, out_indices, with_cls, out, init_cfg)
        self.patch_size = patch_size
        self.grid = grid_of(img_size, patch_size)
        self.pos_embed_antialias = pos_embed_antialias
        self.has_cls = cls_token
        check_with_cls(with_cls, [self])
        self.num_prefix = int(cls_token) + num_registers
        self.pos_embed_prefix = (
            abs_pos_embed and pos_embed_prefix and self.num_prefix > 0
        )
        self.frozen_stages = check_frozen_stages(frozen_stages, depth)
        self.with_cp = with_cp
        held = check_held_blocks(held_blocks, depth)
        relative = rel_pos_bias, decomposed_rel_pos
        window_sizes = read_windows(
            window_size, global_blocks, depth, self.num_prefix, *relative
        )
        self.patch_embed = nn.Identity()
        self.cls_token = self.reg_token = self.pos_embed = None
        if embedding:
            self._add_embedding(in_channels, dim, abs_pos_embed)
        self.blocks = nn.ModuleList(nn.Identity() for _ in range(depth))
        self._add_blocks(
            held,
            drop_path_rate,
            window_sizes,
            *relative,
            dim=dim,
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            qkv_bias=qkv_bias,
            layer_scale_init=layer_scale_init,
            norm_eps=norm_eps,
            mlp_shortcut=mlp_shortcut,
        )
        # The final norm belongs to the last block.
        self.norm = nn.Identity()
        if final_norm and depth - 1 in held:
            self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self._randomise()
        if lora is not None:
            self._add_lora(**read_lora(lora))
        self.freeze()

    @property
    def num_embedded_prefix(self) -> int:
        """Prefix tokens that have an entry in the position embedding."""
        return self.num_prefix if self.pos_embed_prefix else 0

    def init_weights(self) -> None:
        """Load pretrained weights if ``init_cfg`` says so.

        mmengine's own loader skips what does not fit; this one adapts or refuses.

        Raises:
            ValueError: If a key of it is unknown, the weights cannot be read, or they
                are of another geometry.
        """
        source = pretrained_source(self.init_cfg, 'prefix', 'img_size')
        if source is None:
            super().init_weights()
            return
        load_pretrained(self, **source)
        self.is_init = True

    def train(self, mode: bool = True) -> PlainViT:
        """Set the mode of all parts but the frozen ones, which stay in eval mode."""
        super().train(mode)
        if self.frozen_stages >= 0:
            self.patch_embed.eval()
            self.blocks[: self.frozen_stages].eval()
        if self.frozen_stages == self.depth:
            self.norm.eval()
        return self

    def embed(self, images: Tensor) -> TokenState:
        """See :meth:`Anchor.embed`."""
        patches = self.patch_embed(images)
        grid = tuple(patches.shape[-2:])
        x = patches.flatten(2).transpose(1, 2)
        prefix = [
            token.expand(x.shape[0], -1, -1)
            for token in (self.cls_token, self.reg_token)
            if token is not None
        ]
        if self.pos_embed is None:
            return TokenState(torch.cat([*prefix, x], dim=1), grid)
        pos_embed = self._pos_embed_for(grid)
        if self.pos_embed_prefix:
            return TokenState(torch.cat([*prefix, x], dim=1) + pos_embed, grid)
        return TokenState(torch.cat([*prefix, x + pos_embed], dim=1), grid)

    def run_layers(self, i: int, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """See :meth:`TokenAnchor.run_layers`."""
        return self.blocks[i](tokens, grid)

    def run_norm(self, tokens: Tensor) -> Tensor:
        """See :meth:`TokenAnchor.run_norm`."""
        return self.norm(tokens)

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        grid = grid_of(size, self.patch_size)
        if self.pos_embed is not None:
            self.pos_embed.data = self._pos_embed_for(grid)
        for block in self.blocks:
            if isinstance(block, Block):
                block.fix_grid(grid)
        self.grid = grid

    def _add_embedding(self, in_channels: int, dim: int, abs_pos_embed: bool) -> None:
        self.patch_embed = PatchEmbed(self.patch_size, in_channels, dim)
        length = self.grid[0] * self.grid[1] + self.num_embedded_prefix
        self.cls_token = _new_tokens(int(self.has_cls), dim)
        self.reg_token = _new_tokens(self.num_prefix - self.has_cls, dim)
        self.pos_embed = _new_tokens(length if abs_pos_embed else 0, dim)

    def _add_blocks(
        self,
        held: Collection[int],
        drop_path_rate: float,
        window_sizes: Sequence[int],
        rel_pos_bias: bool,
        decomposed_rel_pos: bool,
        **settings,
    ) -> None:
        """Add the held blocks, which have some settings of their own and some alike."""
        rates = torch.linspace(0, drop_path_rate, self.depth, device='cpu').tolist()
        num_heads = settings['num_heads']
        head_dim = settings['dim'] // num_heads
        for i in sorted(held):
            bias, window = None, window_sizes[i]
            if rel_pos_bias:
                bias = RelativePositionBias(self.grid, num_heads, self.num_prefix)
            elif decomposed_rel_pos:
                grid = (window, window) if window else self.grid
                bias = DecomposedRelPosBias(grid, head_dim)
            self.blocks[i] = Block(
                **settings, drop_path=rates[i], rel_pos_bias=bias, window_size=window
            )

    def _pos_embed_for(self, grid: tuple[int, int]) -> Tensor:
        return resize_pos_embed(
            self.pos_embed,
            self.grid,
            grid,
            self.num_embedded_prefix,
            self.pos_embed_antialias,
        )

    def _randomise(self) -> None:
        """The initialisation of DeiT and timm: truncated normal, std 0.02."""
        for name, parameter in self.named_parameters():
            if '.rel_pos_bias.' in name:
                continue  # has its own
            if name.endswith(('embed', 'token')) or (
                name.startswith('blocks') and parameter.ndim == 2
            ):
                nn.init.trunc_normal_(parameter, std=0.02)
            elif name.startswith('blocks') and name.endswith('bias'):
                nn.init.zeros_(parameter)

    def _add_lora(self, **settings) -> None:
        self.requires_grad_(False)
        for block in self.blocks:
            if isinstance(block, Block):
                block.attn.add_lora(**settings)


def _new_tokens(number: int, dim: int) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(1, number, dim)) if number else None
