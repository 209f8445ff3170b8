"""The anchor contract, and the base of all plain ViTs."""

import inspect
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, noop_context_fn

from snnet_mm.utils import check, is_number, is_whole, refusal

from .branches import Branch, BranchKinds, owner_of_forward
from .low_rank import add_lora, add_lora_everywhere, read_lora
from .position import Grid, TensorCache, grid_of, resize_pos_embed
from .pretrained import Weights, load_into, pretrained_options

OUTPUTS = ('maps', 'end')
BackboneMap = Tensor | tuple[Tensor, Tensor]  # a map, or a map and its cls token


class TokenState(NamedTuple):
    """Activations between two blocks of any network."""

    # (B, L, C): prefix tokens, then patches or the pixels of a map in row-major order.
    tokens: Tensor
    grid: Grid

    @classmethod
    def of_map(cls, x: Tensor) -> 'TokenState':
        """Return the state of a map ``(B, C, H, W)``."""
        return cls(x.flatten(2).transpose(1, 2), tuple(x.shape[2:]))

    @property
    def num_prefix(self) -> int:
        """Number of prefix tokens."""
        return self.tokens.shape[1] - self.grid[0] * self.grid[1]

    @property
    def prefix(self) -> Tensor:
        """Prefix tokens ``(B, num_prefix, C)``."""
        return self.tokens[:, : self.num_prefix]

    @property
    def patches(self) -> Tensor:
        """Tokens ``(B, H * W, C)`` without prefix tokens."""
        return self.tokens[:, self.num_prefix :] if self.num_prefix else self.tokens

    def as_map(self) -> Tensor:
        """Return the patches as a map ``(B, C, H, W)``."""
        return self.patches.transpose(1, 2).unflatten(2, self.grid)

    @property
    def fitted(self) -> Tensor:
        """All activations ``(..., C)``, to which stitching layers are fitted."""
        return self.tokens

    def mapped(self, layer: Callable[[Tensor], Tensor]) -> 'TokenState':
        """Return the state with a layer applied to every token."""
        return self._replace(tokens=layer(self.tokens))


class Anchor(BaseModule, metaclass=ABCMeta):
    """A network that can be stitched, or serve alone as a backbone of any mm model.

    A stitched backbone calls only these methods, and has its own ``out_indices``,
    ``with_cls`` and ``out``.

    Args:
        block_dims: Width of the activations after every block.
        block_strides: Stride of the patches in pixels after every block.
        num_prefix: Number of tokens before the patches. Default: 0.
        has_cls: Whether the first prefix token is a cls token. Default: False.
        out_indices: Blocks whose feature maps ``forward`` returns. Default: the last.
        with_cls: Whether to return every map with its cls token, as ``(map, cls)``.
        out: ``'maps'``, or ``'end'`` for the final state that classifiers read.
        frozen_stages: -1 freezes nothing, 0 the embedding, k also the first k
            **blocks**, the depth everything. Frozen parts stay in eval mode.
        with_cp: Whether to recompute blocks in the backward pass.
        kept_blocks: Blocks to build, load and run. Default: all.
        embedding: Whether to keep the embedding. Default: True.
        lora: Settings of low-rank updates; only these are then trained. ``rank``,
            ``alpha`` (default: 1) and ``targets`` (default: all ``lora_targets``);
            ``'all'`` targets every linear layer and the patch convolution.
    """

    # Image height and width that the anchor is built for, if any.
    input_size: tuple[int, int] | None = None
    # Path of the module whose children are ``blocks``, ``norm`` and the embedding, and
    # names of those children that blocks share.
    trunk_path = ''
    shared: Sequence[str] = ()
    # ``context_fn`` of checkpointing: contexts of a block's forward and recomputation.
    checkpoint_context = staticmethod(noop_context_fn)
    # Pattern of keys that pretrained weights must match exactly; see load_into.
    strict_keys = ''
    # Config keys that pretrained weights depend on.
    weights_key = 'init_cfg.checkpoint'
    # The submodule of a block, and its linear layers, that ``lora`` updates.
    lora_part: str = ''
    lora_targets: Sequence[str] = ()
    # Name suffixes of a block's linear layers to whose outputs a plug-in may add.
    biased_layers: tuple[str, ...] = ()
    # Branches of blocks; those of other classes are run whole.
    branch_kinds: BranchKinds = {}
    # Whether the network's own outputs contain prefix tokens.
    outputs_prefix = False
    # Whether maps have layers of their own, of the anchor's ``out_indices`` only.
    has_output_layers = False

    def __init__(
        self,
        block_dims: Sequence[int],
        block_strides: Sequence[int],
        num_prefix: int = 0,
        has_cls: bool = False,
        *,
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        out: str = 'maps',
        frozen_stages: int = -1,
        with_cp: bool = False,
        kept_blocks: Collection[int] | None = None,
        embedding: bool = True,
        lora: Mapping | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.depth = depth = len(block_dims)
        self.block_dims, self.block_strides = tuple(block_dims), tuple(block_strides)
        self.num_prefix, self.has_cls = num_prefix, has_cls
        self.out_indices = check_outputs(out, with_cls, out_indices, [self])
        self.out, self.with_cls, self.with_cp = out, with_cls, with_cp
        right = is_whole(frozen_stages, -1) and frozen_stages <= depth
        expected = f'-1 (nothing), 0 (the embedding) to {depth}'
        check(right, 'frozen_stages', frozen_stages, expected)
        self.kept_blocks = set(range(depth) if kept_blocks is None else kept_blocks)
        known = self.kept_blocks <= {*range(depth)}
        check(known, 'kept_blocks', kept_blocks, f'blocks 0 to {depth - 1}')
        self.frozen_stages, self.has_embedding = frozen_stages, embedding
        self._lora = read_lora(lora, self.lora_targets)

    @property
    def trunk(self) -> nn.Module:
        """The module whose children are ``blocks``, ``norm`` and the embedding."""
        return self.get_submodule(self.trunk_path)

    @property
    def stages(self) -> tuple[range, ...]:
        """Runs of blocks with equal stride; a plain ViT is one stage."""
        strides = self.block_strides
        begins = [i for i in range(1, self.depth) if strides[i] != strides[i - 1]]
        return tuple(range(*run) for run in pairwise([0, *begins, self.depth]))

    @abstractmethod
    def embed(self, images: Tensor) -> TokenState:
        """Return the state before block 0, from images ``(B, 3, H, W)``."""

    @abstractmethod
    def run_block(self, state: TokenState, i: int) -> TokenState:
        """Return the state after block i; a final norm belongs to the last block."""

    def block_path(self, i: int) -> str:
        """Return the name of the module of block i."""
        return f'{self.trunk_path}.blocks.{i}'.lstrip('.')

    def in_block(self, param_name: str, i: int) -> bool:
        """Return whether a parameter goes with block i; see :meth:`drop_block`."""
        return param_name.startswith(f'{self.block_path(i)}.')

    def drop_block(self, i: int) -> None:
        """Remove block i, which must not run afterwards."""
        self.set_submodule(self.block_path(i), nn.Identity())

    def branches(self, i: int) -> tuple[Branch, ...]:
        """Return the residual branches of block i in order; see :class:`BranchView`."""
        block = self.get_submodule(self.block_path(i))
        kinds = self.branch_kinds.get(owner := owner_of_forward(block), (Branch,))
        try:
            return tuple(kind(block) for kind in kinds)
        except AttributeError as error:
            expected = f'branches that fit block {i}, {owner}: {error}'
            names = [kind.__name__ for kind in kinds]
            raise refusal('branches of the family', names, expected) from error

    def enters(self, i: int) -> bool:
        """Return whether layers between two stages run before block i."""
        return False

    def enter(self, state: TokenState, i: int) -> TokenState:
        """Run the layers between two stages that precede block i, if any."""
        return state

    @property
    def last_norm(self) -> nn.Module | None:
        """The norm after the last block, if any."""
        return None

    def finish(self, state: TokenState) -> TokenState:
        """Run the norm after the last block, if any."""
        return state if self.last_norm is None else state.mapped(self.last_norm)

    def to_feature_map(self, state: TokenState) -> Tensor:
        """Return the state as a map ``(B, C, H, W)`` for dense heads."""
        return state.as_map().contiguous()

    @abstractmethod
    def fix_input_size(self, size: tuple[int, int]) -> None:
        """Permanently resample everything that depends on the image size (pixels)."""

    def adapt_weights(self, weights: Weights) -> Weights:
        """Rename pretrained weights; overrides add ``init_cfg`` keys as arguments."""
        return weights

    def init_weights(self) -> None:
        keys = inspect.signature(self.adapt_weights).parameters
        options = pretrained_options(self.init_cfg, *list(keys)[1:])
        if options is None:
            super().init_weights()
            return
        source = options.pop('checkpoint'), self.weights_key
        prefix = options.pop('prefix', '')
        left = {i + 1 for i in range(self.depth)} - {i + 1 for i in self.kept_blocks}
        left |= set() if self.has_embedding else {0}

        def adapt(weights: Weights) -> Weights:
            weights = self.adapt_weights(weights, **options)
            lost = {k for k in weights if left and self.layer_depth(k)[0] in left}
            return {k: weights[k] for k in weights if k not in lost}

        load_into(self, *source, prefix, adapt, self.strict_keys)
        self.is_init = True

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        """Return a parameter's level for layer-wise decay, and the number of levels.

        Levels: 0 for the embedding, ``i + 1`` for block i, ``depth + 1`` for ``norm``.
        """
        levels = self.depth + 2
        part, *rest = param_name.removeprefix(f'{self.trunk_path}.').split('.')
        if part == 'blocks':
            return int(rest[0]) + 1, levels
        return (levels - 1 if part == 'norm' else 0), levels

    def drop_unused(self) -> None:
        """Remove unused blocks, norm and embedding, but keep ``shared`` modules."""
        trunk = self.trunk
        for i in {*range(self.depth)} - self.kept_blocks:
            self.drop_block(i)
        if self.depth - 1 not in self.kept_blocks and hasattr(trunk, 'norm'):
            trunk.norm = nn.Identity()
        if not self.has_embedding:
            for name in {*trunk._modules} - {'blocks', 'norm', *self.shared}:
                setattr(trunk, name, nn.Identity())
            for name in trunk._parameters:
                setattr(trunk, name, None)

    def freeze(self) -> None:
        """Apply ``frozen_stages``; with ``lora``, freeze all but added updates."""
        if self._lora is not None:
            self.requires_grad_(False)
            if self._lora['targets'] == 'all':
                add_lora_everywhere(self.trunk, **self._lora)
            else:
                for block in self.trunk.blocks:
                    part = getattr(getattr(block, 'block', block), self.lora_part, None)
                    if part is not None:  # in downsampling layers and dropped blocks
                        add_lora(part, **self._lora)
        everything = self.frozen_stages == self.depth
        for name, parameter in self.named_parameters():
            if everything or self.layer_depth(name)[0] <= self.frozen_stages:
                parameter.requires_grad = False

    def train(self, mode: bool = True) -> 'Anchor':
        super().train(mode)
        if self.frozen_stages >= 0:
            for name, part in self.trunk.named_children():
                if name == 'blocks':
                    part[: self.frozen_stages].eval()
                elif name != 'norm' or self.frozen_stages == self.depth:
                    part.eval()
        return self

    def maybe_checkpoint(self, function: Callable[..., Tensor], *args) -> Tensor:
        """Call a function, with gradient checkpointing if ``with_cp``."""
        if self.with_cp and torch.is_grad_enabled():
            contexts = self.checkpoint_context
            return checkpoint(function, *args, use_reentrant=False, context_fn=contexts)
        return function(*args)

    def to_output(
        self, state: TokenState, with_cls: bool, place: int = 0
    ) -> BackboneMap:
        """Return a map ``(B, C, H, W)``, or a map and its cls token ``(B, C)``.

        ``place`` is the map's index among the outputs of the backbone.
        """
        feature_map = self.to_feature_map(state)
        return (feature_map, state.tokens[:, 0]) if with_cls else feature_map

    def forward(self, images: Tensor) -> tuple[BackboneMap, ...] | TokenState:
        """Return maps ``(B, C, H, W)`` of the out indices, or the final state."""
        state, maps = self.embed(images), [None] * len(self.out_indices)
        for i in range(self.depth):
            state = self.run_block(state, i) if i in self.kept_blocks else state
            for place, block in enumerate(self.out_indices):
                if block == i and self.out == 'maps':
                    maps[place] = self.to_output(state, self.with_cls, place)
        return state if self.out == 'end' else tuple(maps)


class TokenAnchor(Anchor):
    """An anchor of identical blocks on prefix tokens and a grid of patches.

    Subclasses set ``grid``, the rows and columns of patches that they are built for.

    Args:
        drop_path_rate: Rate of stochastic depth of the last block. Default: 0.
        drop_path_uniform: Whether all blocks have that rate, as in DeiT3's trainings;
            otherwise rates rise linearly from 0 at the first block. Default: False.
        **kwargs: See :class:`Anchor`.
    """

    grid: Grid
    pos_embed_antialias = False  # whether to resample positions with antialiasing
    lora_part, lora_targets = 'attn', ('qkv', 'proj')

    def __init__(
        self,
        dim: int,
        depth: int,
        patch_size: int,
        num_prefix: int,
        has_cls: bool,
        drop_path_rate: float = 0,
        drop_path_uniform: bool = False,
        **kwargs,
    ) -> None:
        dims, strides = [dim] * depth, [patch_size] * depth
        super().__init__(dims, strides, num_prefix, has_cls, **kwargs)
        right = is_number(drop_path_rate) and 0 <= drop_path_rate < 1
        check(right, 'drop_path_rate', drop_path_rate, 'a number in [0, 1)')
        rates = drop_path_rate if drop_path_uniform else 0, drop_path_rate
        self.drop_path_rates = torch.linspace(*rates, depth, device='cpu').tolist()
        self.patch_size, self._kept = patch_size, TensorCache()

    @abstractmethod
    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        """Return tokens ``(B, L, C)`` of images padded to whole patches."""

    @abstractmethod
    def run_layers(
        self, i: int, tokens: Tensor, grid: Grid, mask: Tensor | None = None
    ) -> Tensor:
        """Return tokens ``(B, L, C)`` after block i, without the final norm.

        ``mask``, bool ``(B, 1, L, L)``, is True where a token (row) attends to another;
        only where ``takes_masks``.
        """

    @property
    @abstractmethod
    def takes_masks(self) -> bool:
        """Whether blocks accept masks, and any number of tokens before the patches."""

    def prepend(self, number: int) -> None:
        """Prepare blocks for more tokens without a position before all others."""

    @property
    def input_size(self) -> tuple[int, int]:
        return self.grid[0] * self.patch_size, self.grid[1] * self.patch_size

    @property
    def num_embedded_prefix(self) -> int:
        """Number of prefix tokens that the position embedding has entries for."""
        return self.trunk.pos_embed.shape[1] - self.grid[0] * self.grid[1]

    def positions(self, grid: Grid) -> Tensor | None:
        """Return the position embedding for a grid, if there is one."""
        table = self.trunk.pos_embed
        if table is None or grid == self.grid:
            return table
        how = self.num_embedded_prefix, self.pos_embed_antialias
        make = partial(resize_pos_embed, table, self.grid, grid, *how)
        return self._kept.get(0, grid, [table], make)

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        grid = grid_of(size, self.patch_size)
        if self.trunk.pos_embed is not None:
            self.trunk.pos_embed.data = self.positions(grid)
        self.grid = grid

    def embed(self, images: Tensor) -> TokenState:
        height, width = images.shape[-2:]
        pad_h, pad_w = -height % self.patch_size, -width % self.patch_size
        if pad_h or pad_w:
            images = F.pad(images, (0, pad_w, 0, pad_h))
        grid = grid_of((height, width), self.patch_size)
        return TokenState(self.embed_patches(images, grid), grid)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        x = self.maybe_checkpoint(self.run_layers, i, state.tokens, state.grid)
        state = state._replace(tokens=x)
        return self.finish(state) if i == self.depth - 1 else state

    @property
    def last_norm(self) -> nn.Module | None:
        norm = self.trunk.norm
        return None if isinstance(norm, nn.Identity) else norm


def check_outputs(
    out: str, with_cls: bool, out_indices: Sequence[int], anchors: Sequence[Anchor]
) -> tuple[int, ...]:
    """Validate output options; return non-negative blocks of the last anchor."""
    check(out in OUTPUTS, 'out', out, OUTPUTS)
    right = not with_cls or all(anchor.has_cls for anchor in anchors)
    check(right, 'with_cls', with_cls, 'False, as an anchor has no cls_token')
    depth, right = anchors[-1].depth, isinstance(out_indices, Sequence)
    right = right and all(is_whole(i, -depth) and i < depth for i in out_indices)
    expected = f'one or more blocks {-depth} to {depth - 1}'
    check(right and len(out_indices), 'out_indices', out_indices, expected)
    return tuple(i % depth for i in out_indices)


def check_tokens_correspond(fast: Anchor, slow: Anchor) -> None:
    """Raise if anchors differ in strides or prefix tokens."""
    pair = fast, slow
    strides = [tuple(x.block_strides[stage[0]] for stage in x.stages) for x in pair]
    expected = 'equal patch sizes (strides, in networks with stages); only the '
    expected += 'adapters of a BridgedBackbone resample grids'
    key = 'backbone.anchors.patch_size'
    check(strides[0] == strides[1], key, (*strides,), expected)
    prefixes = [(int(x.has_cls), x.num_prefix - x.has_cls) for x in pair]
    found = tuple(f'{cls} cls token and {n} registers' for cls, n in prefixes)
    expected = 'equal prefix tokens: use other weights, or set num_registers and '
    expected += 'cls_token of a PlainViT or reg_tokens in the model_args of a '
    expected += 'TimmAnchor, and train the new tokens'
    key = 'backbone.anchors.num_registers'
    check(prefixes[0] == prefixes[1], key, found, expected)


def layer_depth_among(
    anchors: Sequence[Anchor | None], param_name: str
) -> tuple[int, int]:
    """Return the layer depth of ``anchors.<i>.<name>``, else the last level."""
    part, _, path = param_name.partition('.')
    i, _, name = path.partition('.')
    if part == 'anchors':
        return anchors[int(i)].layer_depth(name)
    levels = max(anchor.depth for anchor in anchors if anchor) + 2
    return levels - 1, levels
