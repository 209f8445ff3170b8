"""Branches of the blocks of timm's networks."""

from collections.abc import Callable

from torch import Tensor, nn

from .branches import MLP, AttentionBranch, ConvNeXtMLP, owner_of_forward
from .position import Grid
from .timm_internals import attend_in_windows, rotate
from .windows import Windows

# Attention whose heads differ in nothing but their weights.
_BY_HEAD = {'timm.Attention', 'timm.AttentionRope', 'timm.EvaAttention'}
_BY_HEAD |= {'timm.WindowAttention'}


def _with_branch(block: nn.Module, number: int, x: Tensor, branch: Tensor) -> Tensor:
    """Add the first or second branch of a block to its input, scaled as it says."""
    scale = getattr(block, f'ls{number}', None)
    factor = getattr(block, f'gamma_{number}', None)
    branch = branch if scale is None else scale(branch)
    branch = branch if factor is None else factor * branch
    return x + getattr(block, f'drop_path{number}')(branch)


class TimmAttention(AttentionBranch):
    """Attention of timm's plain ViTs.

    Attributes:
        rope: Returns the rotations of a grid, if there are any.
    """

    table = 'relative_position_bias_table'
    rope: Callable[[Grid], Tensor] | None = None

    def __init__(self, block: nn.Module) -> None:
        if getattr(block.attn, 'q_proj', None) is not None:
            self.qkv = 'q_proj.', 'k_proj.', 'v_proj.'
        super().__init__(block)

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        return _with_branch(self.block, 1, x, self.attend(self.block.norm1(x), grid))

    def attend(self, normed: Tensor, grid: Grid) -> Tensor:
        """Return the attention of normalised tokens."""
        more = {} if self.rope is None else dict(rope=self.rope(grid))
        return self.block.attn(normed, **more)

    def fits(self) -> bool:
        attn = self.heads_of
        plain = isinstance(getattr(attn, 'norm', None), nn.Identity | None)
        plain = plain and getattr(attn, 'gate', None) is None
        shared = getattr(attn, 'num_kv_groups', 1) > 1
        return plain and not shared and owner_of_forward(attn) in _BY_HEAD

    def rotated(self, x: Tensor, grid: Grid) -> Tensor:
        return x if self.rope is None else rotate(self.heads_of, x, self.rope(grid))


class TimmSwinAttention(TimmAttention):
    """Attention of timm's Swin."""

    def attend(self, normed: Tensor, grid: Grid) -> Tensor:
        return attend_in_windows(self.block, normed.unflatten(1, grid)).flatten(1, 2)

    def windows(self, grid: Grid) -> Windows:
        return Windows(self.block.window_size, self.block.shift_size, pads_last=True)


class TimmMLP(MLP):
    """MLP of timm's plain ViTs and of its Swin."""

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        b = self.block
        return _with_branch(b, 2, x, b.mlp(b.norm2(x)))

    def fits(self) -> bool:
        return not getattr(self.neurons_of, 'gate_last', False)


class TimmConvNeXtMLP(ConvNeXtMLP):
    """A block of timm's ConvNeXt."""

    conv = 'conv_dw'
    parts, outputs = ('conv_dw', 'norm', 'mlp', 'gamma'), ('gamma',)

    def run(self, x: Tensor, grid: Grid) -> Tensor:
        x = self.block(x.transpose(1, 2).unflatten(2, grid))
        return x.flatten(2).transpose(1, 2)

    def normed(self, x: Tensor) -> Tensor:
        if self.block.use_conv_mlp:
            return self.block.norm(x).flatten(2).transpose(1, 2)
        return super().normed(x)

    def fits(self) -> bool:
        return isinstance(self.block.shortcut, nn.Identity)
