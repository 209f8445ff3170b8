"""Plain timm ViTs as anchors, one row per family; see docs/how_to/anchors.md."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check
from snnet_mm.utils.timm_models import (
    convert_timm_weights,
    create_timm_model,
    log_timm_licence,
    timm_init_cfg,
)

from .base import TokenAnchor
from .position import (
    Grid,
    TensorCache,
    add_positions,
    grid_of,
    resize_pos_embed,
)
from .pretrained import Weights

# Modules of timm's models that follow the backbone features.
_HEADS = {'head', 'head_dist', 'head_drop', 'fc_norm', 'attn_pool'}
# Arguments that the anchor sets itself, and patch dropout, which breaks the grid.
_OWN_KEYS = {'pretrained', 'num_classes', 'img_size', 'drop_path_rate'}
_OWN_KEYS |= {'patch_drop_rate'}


def _embed(anchor: 'TimmAnchor', images: Tensor, grid: Grid) -> Tensor:
    """Return patches with prefix tokens and positions, after timm's own layers."""
    vit, names = anchor.vit, ('cls_token', 'dist_token', 'reg_token')
    prefix = (getattr(vit, name, None) for name in names)
    patches = vit.patch_embed(images).flatten(1, 2)
    tokens = add_positions(patches, anchor.pos_embed(grid), *prefix)
    return vit.norm_pre(vit.pos_drop(tokens))


def _run(anchor: 'TimmAnchor', i: int, tokens: Tensor, grid: Grid) -> Tensor:
    return anchor.vit.blocks[i](tokens)


def _run_rotated(anchor: 'TimmAnchor', i: int, tokens: Tensor, grid: Grid) -> Tensor:
    rope, kept = anchor.vit.rope, anchor.kept
    if rope is not None:
        make = partial(rope.get_embed, grid)
        if anchor.vit.rope_mixed:
            rope = kept.get(0, grid, rope.freqs, make)[i]
        else:
            table = next(rope.buffers())
            rope = kept.get(0, (*grid, table.device, table.dtype), None, make)
    return anchor.vit.blocks[i](tokens, rope=rope)


@dataclass(frozen=True)
class TimmFamily:
    """How models of one class of timm are run; functions take the anchor first.

    Attributes:
        run: Returns tokens ``(B, L, C)`` after a block, from its number, tokens, grid.
        embed: Returns tokens of images padded to whole patches, for a grid.
        shared: Modules outside the blocks that blocks use; others belong to the
            embedding.
        arguments: Arguments of ``timm.create_model`` for patch grids of any size.
        one_size: Whether images must have the size that the model is built for.
    """

    run: Callable[['TimmAnchor', int, Tensor, Grid], Tensor] = _run
    embed: Callable[['TimmAnchor', Tensor, Grid], Tensor] = _embed
    shared: tuple[str, ...] = ()
    arguments: Mapping = field(default_factory=lambda: dict(dynamic_img_size=True))
    one_size: bool = False


# By the name of timm's class; EVA-02, DINOv3, the Perception Encoder and ViTs with RoPE
# are ``Eva``.
TIMM_FAMILIES: dict[str, TimmFamily] = {
    'VisionTransformer': TimmFamily(),
    'VisionTransformerDistilled': TimmFamily(),
    'Eva': TimmFamily(_run_rotated, shared=('rope',)),
}


@MODELS.register_module()
class TimmAnchor(TokenAnchor):
    """A plain ViT of timm: an anchor or a standalone backbone.

    Contains timm's model without its classifier as ``vit`` and runs its blocks;
    parameter names are timm's, prefixed with ``vit.``. :data:`TIMM_FAMILIES` has a row
    for every class of timm that it runs.

    Args:
        model: Name in timm, such as ``'vit_small_patch14_reg4_dinov2.lvd142m'``.
        pretrained: Shorthand for ``init_cfg=dict(type='Pretrained',
            checkpoint='timm://<model>')``.
        img_size: Image side in pixels, or height and width, rounded up to whole
            patches. Position embeddings are resampled for other sizes. Default: timm's.
        model_args: Further arguments of ``timm.create_model``.
        final_norm: Whether the last block includes timm's final norm, if any, as in
            ``forward_features``. Default: True.
        **kwargs: See :class:`TokenAnchor`. Modules that blocks share are built even
            without ``embedding``.
    """

    strict_keys = r'vit\.(blocks|patch_embed)\.'

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        img_size: int | Sequence[int] | None = None,
        model_args: Mapping | None = None,
        final_norm: bool = True,
        drop_path_rate: float = 0,
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        init_cfg = timm_init_cfg(model, pretrained, init_cfg)
        family, patch = _read_family(model, dict(model_args or {}))
        given = {**family.arguments, **(model_args or {})}
        if drop_path_rate:
            given['drop_path_rate'] = drop_path_rate
        if img_size is not None:
            given['img_size'] = tuple(n * patch for n in grid_of(img_size, patch))
        vit = create_timm_model(model, num_classes=0, **given)
        super().__init__(
            vit.embed_dim,
            len(vit.blocks),
            patch,
            getattr(vit, 'num_prefix_tokens', 0),
            getattr(vit, 'cls_token', None) is not None,
            drop_path_rate,
            init_cfg=init_cfg,
            **kwargs,
        )
        self.vit, self.kept, self.family = vit, TensorCache(), family
        self.one_size = family.one_size
        self.grid: Grid = tuple(vit.patch_embed.grid_size)
        if not final_norm or not hasattr(vit, 'norm'):
            vit.norm = nn.Identity()
        for name in vit._modules.keys() & _HEADS:
            setattr(vit, name, nn.Identity())
        self.drop_unused(family.shared)
        self.freeze()

    @property
    def trunk(self) -> nn.Module:
        return self.vit

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of the network, in order."""
        return self.vit.blocks

    def block_path(self, i: int) -> str:
        return f'vit.blocks.{i}'

    def init_weights(self) -> None:
        if self.init_cfg is not None:  # otherwise keep timm's random weights
            super().init_weights()
            log_timm_licence(self.vit)
        self.is_init = True

    def adapt_weights(self, weights: Weights) -> Weights:
        weights = {k.removeprefix('vit.'): v for k, v in weights.items()}
        weights = convert_timm_weights(self.vit, weights).items()
        return {f'vit.{k}': v for k, v in weights if k.split('.')[0] not in _HEADS}

    def train(self, mode: bool = True) -> 'TimmAnchor':
        super().train(mode)
        for name in self.family.shared:
            if getattr(self.vit, name, None) is not None:
                getattr(self.vit, name).eval()
        return self

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        return super().layer_depth(param_name.removeprefix('vit.'))

    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        self.check_size([side * self.patch_size for side in grid])
        return self.family.embed(self, images, grid)

    def run_layers(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        return self.family.run(self, i, tokens, grid)

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        grid = grid_of(size, self.patch_size)
        self.check_size([side * self.patch_size for side in grid])
        if getattr(self.vit, 'pos_embed', None) is not None:
            self.vit.pos_embed.data = self.pos_embed(grid)
        self.grid = grid

    def pos_embed(self, grid: Grid) -> Tensor | None:
        """Return the position embedding for a grid, resampled as timm does."""
        table = self.vit.pos_embed
        if table is None:
            return None
        num_prefix = table.shape[1] - self.grid[0] * self.grid[1]
        return resize_pos_embed(table, self.grid, grid, num_prefix, antialias=True)


def _read_family(model: str, given: dict) -> tuple[TimmFamily, int]:
    """Return the family and the patch size of a model of timm, built on meta."""
    allowed = f'a dict without {sorted(_OWN_KEYS)}'
    check(not _OWN_KEYS & given.keys(), 'model_args', given, allowed)
    with torch.device('meta'):
        sketch = create_timm_model(model, num_classes=0, **given)
    name = type(sketch).__name__
    allowed = f"a model of timm's classes {sorted(TIMM_FAMILIES)}; this is "
    allowed += f'a {name}; docs/how_to/anchors.md shows how to add another'
    check(name in TIMM_FAMILIES, 'model', model, allowed)
    height, width = sketch.patch_embed.feat_ratio(as_scalar=False)
    key = 'model, model_args.patch_size'
    check(height == width, key, (height, width), 'square patches')
    return TIMM_FAMILIES[name], height
