"""The anchor contract: what a network must offer to be stitched."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise

from mmengine.model import BaseModule
from torch import Tensor

from snnet_mm.utils import is_whole

from .token_state import TokenState

OUTPUTS = ('maps', 'end')
BackboneMap = Tensor | tuple[Tensor, Tensor]  # a map, or a map and its cls token


class Anchor(BaseModule, metaclass=ABCMeta):
    """A network that can be stitched; by itself, a backbone for any mm model.

    The walk along a route calls only what stands here and never looks inside.

    Args:
        block_dims: Width of the activations after every block.
        block_strides: Pixels between two patches after every block.
        out_indices: Blocks whose feature maps ``forward`` returns. A stitched backbone
            has out indices of its own and does not read them.
        with_cls: Whether ``forward`` returns every map with the cls token behind the
            same block, as ``(map, cls)``. A stitched backbone has its own setting.
        out: What ``forward`` returns: ``'maps'``, or ``'end'`` for the final state, as
            classifiers read it. A stitched backbone has its own setting.
        init_cfg: mmengine's initialisation config.

    Raises:
        ValueError: If an out index is no block, or ``out`` is unknown.
    """

    frozen_stages = -1  # 0 freezes the embedding, k the first k blocks, too
    num_prefix = 0  # tokens in front of the patches
    has_cls = False  # whether the first prefix token is a cls token
    # Height and width of the images that it is built for, if it is for one size.
    input_size: tuple[int, int] | None = None

    def __init__(
        self,
        block_dims: Sequence[int],
        block_strides: Sequence[int],
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        out: str = 'maps',
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.depth = len(block_dims)
        self.block_dims = tuple(block_dims)
        self.block_strides = tuple(block_strides)
        self.out_indices = check_out_indices(out_indices, self.depth)
        self.with_cls = with_cls
        self.out = check_out(out)

    @property
    def stages(self) -> tuple[range, ...]:
        """Runs of blocks with equal stride; a plain ViT is one stage."""
        strides = self.block_strides
        begins = [i for i in range(1, self.depth) if strides[i] != strides[i - 1]]
        return tuple(range(*run) for run in pairwise([0, *begins, self.depth]))

    @abstractmethod
    def embed(self, images: Tensor) -> TokenState:
        """The state in front of block 0, from images ``(B, 3, H, W)``."""

    @abstractmethod
    def run_block(self, state: TokenState, i: int) -> TokenState:
        """Return the state after block i; a final norm belongs to the last block."""

    @abstractmethod
    def to_feature_map(self, state: TokenState) -> Tensor:
        """The state as a map ``(B, C, H, W)`` for dense heads."""

    @abstractmethod
    def fix_input_size(self, size: tuple[int, int]) -> None:
        """Resample, once for all, what depends on the size of the images.

        Outputs for images of this size, in pixels, stay the same; a traced graph then
        holds no resampling.
        """

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        """Depth of a parameter for layer-wise decay.

        Args:
            param_name: Name inside the anchor. Here ``blocks.i`` is block i, ``norm``
                comes behind them, and everything else is the embedding.

        Returns:
            0 for the embedding, ``i + 1`` for block i, ``depth + 1`` for what comes
            behind; and the number of these levels, ``depth + 2``.
        """
        levels = self.depth + 2
        part, *rest = param_name.split('.')
        if part == 'blocks':
            return int(rest[0]) + 1, levels
        return (levels - 1 if part == 'norm' else 0), levels

    def freeze(self) -> None:
        """Take the gradients from the first ``frozen_stages`` blocks and before."""
        everything = self.frozen_stages == self.depth
        for name, parameter in self.named_parameters():
            if everything or self.layer_depth(name)[0] <= self.frozen_stages:
                parameter.requires_grad = False

    def to_output(self, state: TokenState, with_cls: bool) -> BackboneMap:
        """The state as dense heads read it.

        Returns:
            A map ``(B, C, H, W)``, or a map and its cls token ``(B, C)``.
        """
        feature_map = self.to_feature_map(state)
        return (feature_map, state.tokens[:, 0]) if with_cls else feature_map

    def forward(self, images: Tensor) -> tuple[BackboneMap, ...] | TokenState:
        """Feature maps ``(B, C, H, W)`` of the out indices, or the final state."""
        state, maps = self.embed(images), {}
        for i in range(self.depth):
            state = self.run_block(state, i)
            if self.out == 'maps' and i in self.out_indices:
                maps[i] = self.to_output(state, self.with_cls)
        return state if self.out == 'end' else tuple(maps[i] for i in self.out_indices)


def check_out(out: str) -> str:
    """What a backbone returns.

    Raises:
        ValueError: If it is unknown.
    """
    if out not in OUTPUTS:
        raise ValueError(f'out={out!r}; allowed are {OUTPUTS} (config key: out)')
    return out


def check_with_cls(with_cls: bool, anchors: Iterable[Anchor]) -> bool:
    """Whether maps come with a cls token.

    Raises:
        ValueError: If they should and an anchor has none.
    """
    if with_cls and not all(anchor.has_cls for anchor in anchors):
        raise ValueError(
            'with_cls=True, but an anchor has no cls token; allowed are anchors with '
            'cls_token=True (config keys: backbone.with_cls, cls_token)'
        )
    return with_cls


def check_out_indices(out_indices: Sequence[int], depth: int) -> tuple[int, ...]:
    """Out indices as non-negative block numbers, -1 being the last block.

    Raises:
        ValueError: If there are none, or one is no block of an anchor of this depth.
    """
    listed = isinstance(out_indices, Sequence)
    right = listed and all(is_whole(i, -depth) and i < depth for i in out_indices)
    if not right or not out_indices:
        raise ValueError(
            f'out_indices={out_indices!r} of an anchor of depth {depth}; allowed are '
            f'blocks {-depth} to {depth - 1} (config key: out_indices)'
        )
    return tuple(i % depth for i in out_indices)
