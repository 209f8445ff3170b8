"""The plain ViTs of timm by block, a class per family; see ``docs/families.md``."""

from functools import partial

from torch import Tensor, nn

from snnet_mm.utils import check

from .position import (
    Grid,
    KeptTensors,
    add_positions,
    gather_bias,
    resize_bias_table,
    resize_offsets,
    resize_pos_embed,
)
from .timm_internals import split_attention, take_bias_from_outside


class TimmFamily:
    """timm's ``VisionTransformer``; other families override what they do otherwise."""

    # What timm.create_model is told, so that patches of any size come as a map.
    arguments: dict = dict(dynamic_img_size=True)
    # Modules before the blocks that blocks read; all others go with the embedding.
    shared: tuple[str, ...] = ()

    def __init__(self, vit: nn.Module) -> None:
        self.vit = vit
        self.grid: Grid = tuple(vit.patch_embed.grid_size)
        self.num_prefix: int = getattr(vit, 'num_prefix_tokens', 0)
        self.has_cls = getattr(vit, 'cls_token', None) is not None
        self.kept = KeptTensors()

    def embed(self, images: Tensor, grid: Grid) -> Tensor:
        """Return tokens ``(B, L, C)`` of images ``(B, 3, H, W)`` that a grid covers."""
        patches = self.vit.patch_embed(images).flatten(1, 2)
        return self.vit.norm_pre(self.to_tokens(patches, grid))

    def run_block(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        """Return tokens ``(B, L, C)`` after block i."""
        return self.vit.blocks[i](tokens)

    def fix_grid(self, grid: Grid) -> None:
        """Resample, once for all, what depends on the grid."""
        if self.vit.pos_embed is not None:
            self.vit.pos_embed.data = self.pos_embed(grid)
        self.grid = grid

    def pos_embed(self, grid: Grid) -> Tensor | None:
        """Return the position embedding for a grid, resampled as timm does."""
        table = self.vit.pos_embed
        if table is None:
            return None
        num_prefix = table.shape[1] - self.grid[0] * self.grid[1]
        return resize_pos_embed(table, self.grid, grid, num_prefix)

    def to_tokens(self, patches: Tensor, grid: Grid) -> Tensor:
        """Turn patches ``(B, h * w, C)`` into tokens."""
        names = 'cls_token', 'dist_token', 'reg_token'
        prefix = (getattr(self.vit, name, None) for name in names)
        return self.vit.pos_drop(add_positions(patches, self.pos_embed(grid), *prefix))


class EvaFamily(TimmFamily):
    """timm's ``Eva``: EVA-02, DINOv3, the Perception Encoder, ViTs with RoPE."""

    shared = ('rope',)

    def run_block(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        rope = self.vit.rope
        if rope is not None:
            make = partial(rope.get_embed, grid)
            if self.vit.rope_mixed:
                rope = self.kept.get(0, grid, rope.freqs, make)[i]
            else:
                table = next(rope.buffers())
                rope = self.kept.get(0, (*grid, table.device, table.dtype), None, make)
        return self.vit.blocks[i](tokens, rope=rope)


class BeitFamily(TimmFamily):
    """timm's ``Beit``: BEiT and BEiTv2, with relative position biases."""

    arguments: dict = {}
    shared = ('rel_pos_bias',)

    def __init__(self, vit: nn.Module) -> None:
        super().__init__(vit)
        vit.patch_embed.strict_img_size = False
        for block in vit.blocks:
            take_bias_from_outside(block.attn)

    def embed(self, images: Tensor, grid: Grid) -> Tensor:
        return self.to_tokens(self.vit.patch_embed(images), grid)

    def run_block(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        block, bias = self.vit.blocks[i], None
        for slot, module in ((i, block.attn), (-1, self.vit.rel_pos_bias)):
            table = getattr(module, 'relative_position_bias_table', None)
            if table is not None:
                make = partial(gather_bias, table, self.grid, grid, self.num_prefix)
                own = self.kept.get(slot, grid, table, make)
                bias = own if bias is None else bias + own
        return block(tokens, shared_rel_pos_bias=bias)

    def fix_grid(self, grid: Grid) -> None:
        for name, table in self.vit.named_parameters():
            if name.endswith('relative_position_bias_table'):
                table.data = resize_bias_table(table.data, self.grid, grid)
        super().fix_grid(grid)


class SamFamily(TimmFamily):
    """timm's ``VisionTransformerSAM`` without neck; its blocks take maps."""

    arguments: dict = {}
    shared = ('rope_global', 'rope_window')

    def embed(self, images: Tensor, grid: Grid) -> Tensor:
        vit = self.vit
        right = vit.rope_global is None or grid == self.grid
        check(right, 'img_size', grid, f'{self.grid} patches, for which its RoPE is')
        x = vit.patch_embed(images)
        if vit.pos_embed is not None:
            x = x + self.pos_embed(grid)
        return vit.norm_pre(vit.pos_drop(x)).flatten(1, 2)

    def run_block(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        return self.vit.blocks[i](tokens.unflatten(1, grid)).flatten(1, 2)

    def fix_grid(self, grid: Grid) -> None:
        for block in self.vit.blocks:
            if isinstance(block, nn.Identity):
                continue
            split_attention(block.attn)
            if block.window_size == 0 and block.attn.use_rel_pos:
                for side, name in zip(grid, ('rel_pos_h', 'rel_pos_w'), strict=True):
                    table = getattr(block.attn, name)
                    table.data = resize_offsets(table.data, side)
        super().fix_grid(grid)

    def pos_embed(self, grid: Grid) -> Tensor:
        table = self.vit.pos_embed.flatten(1, 2)
        return resize_pos_embed(table, self.grid, grid, 0).unflatten(1, grid)


# By the name of timm's class.
TIMM_FAMILIES: dict[str, type[TimmFamily]] = {
    'VisionTransformer': TimmFamily,
    'VisionTransformerDistilled': TimmFamily,
    'Eva': EvaFamily,
    'Beit': BeitFamily,
    'VisionTransformerSAM': SamFamily,
}
