"""Plain ViTs of timm as anchors; see ``docs/how_to/anchors.md``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check
from snnet_mm.utils.timm_models import (
    check_model_args,
    convert_timm_weights,
    create_timm_model,
    log_timm_licence,
    timm_init_cfg,
)

from .base import TokenAnchor
from .blockwise import Family, family_of, register_family
from .branches import Branch, BranchKinds
from .checkpoint_filters import cut_blocks
from .position import Grid, add_positions, grid_of
from .pretrained import Weights, check_registers
from .timm_branches import TimmAttention, TimmMLP
from .vit_block import DropPath

# Modules of timm's models that follow the backbone features.
_HEADS = {'head', 'head_dist', 'head_drop', 'fc_norm', 'attn_pool'}
# Arguments that the anchor sets itself, and patch dropout, which breaks the grid.
_OWN_KEYS = {'pretrained', 'num_classes', 'img_size', 'drop_path_rate'}
_OWN_KEYS |= {'dynamic_img_size', 'patch_drop_rate'}


@dataclass(frozen=True)
class PlainFamily(Family):
    """Plain ViTs of timm.

    Attributes:
        branches: Branches of the classes of blocks that have any.
        one_size: Whether images must have the size that the network is built for.
    """

    branches: BranchKinds = field(default_factory=dict)
    one_size: bool = False


_BRANCHES = dict.fromkeys(('timm.Block', 'timm.EvaBlock'), (TimmAttention, TimmMLP))
for _mirrors, _one_size in (
    # EVA-02, DINOv3, Perception Encoders and ViTs with RoPE are ``Eva``.
    (('timm.VisionTransformer', 'timm.Eva'), False),
    (('timm.Beit',), True),
):
    register_family(PlainFamily('TimmAnchor', _mirrors, _BRANCHES, _one_size))


@MODELS.register_module()
class TimmAnchor(TokenAnchor):
    """A plain ViT of timm: an anchor or a standalone backbone.

    Contains timm's model without its classifier as ``vit`` and runs its blocks;
    parameter names are timm's, prefixed with ``vit.``. For networks that no
    :class:`PlainFamily` mirrors, see :class:`Anchor`.

    Args:
        model: Name in timm, such as ``'vit_small_patch14_reg4_dinov2.lvd142m'``.
        pretrained: Shorthand for ``init_cfg=dict(type='Pretrained',
            checkpoint='timm://<model>')``.
        img_size: Image side in pixels, or height and width, rounded up to whole
            patches. Position embeddings are resampled for other sizes. Default: timm's.
        model_args: Further arguments of ``timm.create_model``.
        final_norm: Whether the last block includes timm's final norm, if any, as in
            ``forward_features``. Default: True.
        **kwargs: See :class:`TokenAnchor`. Rotary embeddings, which blocks share, are
            built even without ``embedding``. An ``init_cfg`` of type ``'Pretrained'``
            accepts ``blocks``, as that of :class:`PlainViT` does.
    """

    strict_keys = r'vit\.(blocks|patch_embed)\.'
    trunk_path, shared = 'vit', ('rope',)
    pos_embed_antialias = True

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        img_size: int | Sequence[int] | None = None,
        model_args: Mapping | None = None,
        final_norm: bool = True,
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        init_cfg = timm_init_cfg(model, pretrained, init_cfg)
        given = check_model_args(model_args, _OWN_KEYS)
        family, patch = _read_family(model, given)
        if not family.one_size:
            given['dynamic_img_size'] = True
        if img_size is not None:
            given['img_size'] = tuple(n * patch for n in grid_of(img_size, patch))
        vit = create_timm_model(model, num_classes=0, **given)
        prefix = vit.num_prefix_tokens, vit.cls_token is not None
        size = vit.embed_dim, len(vit.blocks), patch
        super().__init__(*size, *prefix, init_cfg=init_cfg, **kwargs)
        self.vit, self.grid = vit, tuple(vit.patch_embed.grid_size)
        self.branch_kinds, self._one_size = family.branches, family.one_size
        if model_args:
            self.weights_key += ', model_args'
        right = getattr(vit, 'rel_pos_bias', None) is None
        expected = 'False, as a bias that blocks share belongs to none of them'
        check(right, 'model_args.use_shared_rel_pos_bias', True, expected)
        for block, rate in zip(vit.blocks, self.drop_path_rates, strict=True):
            for name in [n for n, _ in block.named_modules() if 'drop_path' in n]:
                block.set_submodule(name, DropPath(rate))
        if not final_norm:
            vit.norm = nn.Identity()
        for name in vit._modules.keys() & _HEADS:
            setattr(vit, name, nn.Identity())
        self.drop_unused()
        self.freeze()

    def init_weights(self) -> None:
        if self.init_cfg is not None:  # otherwise keep timm's random weights
            super().init_weights()
            log_timm_licence(self.vit)
        self.is_init = True

    def adapt_weights(
        self, weights: Weights, blocks: tuple[int, int] | None = None
    ) -> Weights:
        """Rename and resample weights as timm does; for ``blocks`` see PlainViT."""
        weights = {k.removeprefix('vit.'): v for k, v in weights.items()}
        if blocks is not None:
            weights = cut_blocks(weights, blocks, self.depth)
        registers = self.num_prefix - self.has_cls
        check_registers(weights, registers, 'model, model_args.reg_tokens')
        right = self.has_cls or 'cls_token' not in weights
        expected = 'True, as the weights have a cls token'
        check(right, 'model, model_args.class_token', False, expected)
        # timm's filters look for the modules of all weights.
        left = {*range(self.depth)} - self.kept_blocks
        embedding = () if self.has_embedding else ('patch_embed.', 'pos_embed')
        dropped = *(f'blocks.{i}.' for i in left), *embedding
        weights = {k: v for k, v in weights.items() if not k.startswith(dropped)}
        weights = convert_timm_weights(self.vit, weights).items()
        return {f'vit.{k}': v for k, v in weights if k.split('.')[0] not in _HEADS}

    def train(self, mode: bool = True) -> 'TimmAnchor':
        super().train(mode)
        if self.rope is not None:
            self.rope.eval()  # without augmented coordinates
        return self

    @property
    def rope(self) -> nn.Module | None:
        """The rotary embedding of the network, if any."""
        return getattr(self.vit, 'rope', None)

    def fix_input_size(self, size: tuple[int, int]) -> None:
        self._check_grid(grid_of(size, self.patch_size))
        super().fix_input_size(size)

    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        self._check_grid(grid)
        vit, names = self.vit, ('cls_token', 'dist_token', 'reg_token')
        prefix = (getattr(vit, name, None) for name in names)
        patches = vit.patch_embed(images).flatten(1, -2)
        tokens = add_positions(patches, self.positions(grid), *prefix)
        return getattr(vit, 'norm_pre', nn.Identity())(vit.pos_drop(tokens))

    def _check_grid(self, grid: Grid) -> None:
        size = tuple(n * self.patch_size for n in grid)
        right = not self._one_size or tuple(grid) == self.grid
        expected = f'{self.input_size}, the only size that the network is built for'
        check(right, 'anchors.img_size', size, expected)

    def rotations(self, i: int, grid: Grid) -> Tensor:
        """Return the rotary embedding of block i, that of every head if learned."""
        make = partial(self.rope.get_embed, grid)
        if self.vit.rope_mixed:
            return self._kept.get('rope', grid, [self.rope.freqs], make)[i]
        table = next(self.rope.buffers())
        key = (*grid, table.device, table.dtype)
        return self._kept.get('rope', key, [], make)

    def run_layers(
        self, i: int, tokens: Tensor, grid: Grid, mask: Tensor | None = None
    ) -> Tensor:
        more = {} if self.rope is None else dict(rope=self.rotations(i, grid))
        more |= {} if mask is None else dict(attn_mask=mask)
        return self.vit.blocks[i](tokens, **more)

    @property
    def takes_masks(self) -> bool:
        return not self._one_size  # as of BEiT's biases

    def prepend(self, number: int) -> None:
        for module in self.vit.blocks.modules():
            if hasattr(module, 'num_prefix_tokens'):  # they are not rotated
                module.num_prefix_tokens += number

    def branches(self, i: int) -> tuple[Branch, ...]:
        found = super().branches(i)
        for branch in found:
            if isinstance(branch, TimmAttention) and self.rope is not None:
                branch.rope = partial(self.rotations, i)
                if self.vit.rope_mixed:  # all blocks share what each head has learned
                    branch.units = 1
        return found


def _read_family(model: str, given: dict) -> tuple[PlainFamily, int]:
    """Return the family and the patch size of a model, built on the meta device."""
    with torch.device('meta'):
        sketch = create_timm_model(model, num_classes=0, **given)
    family = family_of(sketch, PlainFamily, 'anchors.model', model)
    height, width = sketch.patch_embed.feat_ratio(as_scalar=False)
    key = 'model, model_args.patch_size'
    check(height == width, key, (height, width), 'square patches')
    return family, height
