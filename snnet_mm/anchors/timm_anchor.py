"""Any plain ViT of timm as an anchor."""

from collections.abc import Mapping, Sequence

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, register
from snnet_mm.utils.timm_models import (
    convert_timm_weights,
    create_timm_model,
    log_timm_licence,
)

from .base import TokenAnchor
from .position import Grid, grid_of
from .pretrained import Weights
from .timm_families import TIMM_FAMILIES, TimmFamily

# What timm's models have after the features of a backbone.
_HEADS = {'head', 'head_dist', 'head_drop', 'fc_norm', 'attn_pool', 'neck'}
# Arguments of our own, and patches that would be dropped.
_OWN_KEYS = {'pretrained', 'num_classes', 'img_size', 'drop_path_rate'}
_OWN_KEYS |= {'patch_drop_rate'}


@register(MODELS)
class TimmAnchor(TokenAnchor):
    """A plain ViT of timm: an anchor, or a backbone by itself.

    It holds timm's own model, without its classifier, as ``vit`` and runs its blocks;
    parameters are named ``vit.`` and then as in timm. ``docs/families.md`` says when
    :class:`PlainViT` is to be preferred; both can be stitched to one another.

    Args:
        model: Its name in timm, such as ``'vit_small_patch14_reg4_dinov2.lvd142m'``.
        pretrained: The same as ``init_cfg=dict(type='Pretrained',
            checkpoint='timm://<model>')``: weights that timm fetches.
        img_size: Pixels, or height and width, that it is built for, rounded up to
            whole patches; by default timm's. Images of any other size resample what
            depends on it.
        final_norm: Whether timm's norm after the blocks, if it has one there, belongs
            to the last block's output, as in ``forward_features``.
        **kwargs: See :class:`TokenAnchor`. Without ``embedding``, what blocks share is
            built all the same. An ``init_cfg`` of type ``'Pretrained'`` loads a file as
            timm's model of the same class would, or a ``vit.`` of ours.
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
        if pretrained:
            check(init_cfg is None, 'init_cfg', init_cfg, 'None with pretrained=True')
            init_cfg = dict(type='Pretrained', checkpoint=f'timm://{model}')
        given = dict(model_args or {})
        allowed = f'a dict without {sorted(_OWN_KEYS)}'
        check(not _OWN_KEYS & given.keys(), 'model_args', given, allowed)
        if drop_path_rate:
            given['drop_path_rate'] = drop_path_rate
        family, patch_size, arguments = _plan(model, given, img_size)
        vit = create_timm_model(model, **arguments)
        family, size = family(vit), (vit.embed_dim, len(vit.blocks), patch_size)
        prefix = family.num_prefix, family.has_cls
        super().__init__(*size, *prefix, drop_path_rate, init_cfg=init_cfg, **kwargs)
        self.family, self.vit, self.kept = family, vit, family.kept
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
    def grid(self) -> Grid:
        """Rows and columns of patches that the network is built for."""
        return self.family.grid

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of the network, in order."""
        return self.vit.blocks

    def init_weights(self) -> None:
        if self.init_cfg is not None:  # else what timm has drawn stays
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

    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        return self.family.embed(images, grid)

    def run_layers(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        return self.family.run_block(i, tokens, grid)

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        self.family.fix_grid(grid_of(size, self.patch_size))

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        return super().layer_depth(param_name.removeprefix('vit.'))


def _plan(
    model: str, arguments: Mapping, img_size: int | Sequence[int] | None
) -> tuple[type[TimmFamily], int, dict]:
    """Return family, patch size and all arguments of a model."""
    arguments = dict(arguments, num_classes=0)
    # Which class it is only a built model tells; on the meta device that costs nothing.
    with torch.device('meta'):
        sketch = create_timm_model(model, **arguments)
    name = type(sketch).__name__
    allowed = f'models of the classes {sorted(TIMM_FAMILIES)} of timm, and this is a '
    allowed += f'{name}; docs/families.md shows how to add another'
    check(name in TIMM_FAMILIES, 'model', model, allowed)
    height, width = sketch.patch_embed.feat_ratio(as_scalar=False)
    square = 'models with square patches'
    check(height == width, 'model, model_args.patch_size', (height, width), square)
    family = TIMM_FAMILIES[name]
    if img_size is not None:
        arguments['img_size'] = tuple(n * height for n in grid_of(img_size, height))
    return family, height, {**family.arguments, **arguments}
