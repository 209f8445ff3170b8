"""Any plain ViT of timm as an anchor."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils.licences import log_timm_licence
from snnet_mm.utils.timm_models import create_timm_model

from .base import TokenState, check_with_cls
from .low_rank import LoRALinear
from .plain_vit_settings import check_frozen_stages, check_held_blocks, read_lora
from .position import grid_of
from .pretrained import log_keys, read_weights, select_prefix
from .timm_families import TIMM_FAMILIES, TimmFamily
from .token_anchor import TokenAnchor

# What timm's models have behind the features of a backbone.
_HEADS = ('head', 'head_dist', 'head_drop', 'fc_norm', 'attn_pool', 'neck')
_OWN_KEYS = ('pretrained', 'num_classes', 'img_size', 'drop_path_rate')


@MODELS.register_module()
class TimmAnchor(TokenAnchor):
    """A plain ViT of timm: an anchor, or a backbone by itself.

    It holds timm's own model, without its classifier, as ``vit`` and runs its blocks;
    parameters are named ``vit.`` and then as in timm. ``docs/families.md`` says when
    :class:`PlainViT` is to be preferred; both can be stitched to one another.

    Args:
        model: Its name in timm, such as ``'vit_small_patch14_reg4_dinov2.lvd142m'``.
        pretrained: Whether ``init_weights`` loads timm's weights, which timm fetches.
        img_size: Pixels, or height and width, that it is built for, rounded up to
            whole patches; by default timm's. Images of any other size resample what
            depends on it.
        model_args: Other arguments of ``timm.create_model``.
        out_indices: Blocks whose maps ``forward`` returns.
        with_cls: Whether ``forward`` returns ``(map, cls)`` for each of these blocks.
        out: ``'maps'``, or ``'end'`` for the final state.
        final_norm: Whether timm's norm behind the blocks, if it has one there, belongs
            to the last block's output, as in ``forward_features``.
        drop_path_rate: Stochastic depth of the last block, rising linearly from 0.
        frozen_stages: See :class:`PlainViT`.
        lora: See :class:`PlainViT`.
        with_cp: See :class:`PlainViT`.
        held_blocks: See :class:`PlainViT`.
        embedding: Whether the embedding is held. What blocks share, such as learned
            rotary frequencies, is held all the same and counted with the embedding.
        init_cfg: ``dict(type='Pretrained', checkpoint=..., prefix=...)`` loads a file
            as timm's model of the same class would, or a ``vit.`` of ours.

    Raises:
        ValueError: If timm has no such model or it cannot be built so, it is of no
            family that can be run block by block, or for what :class:`PlainViT`
            refuses.
        ImportError: If timm is missing.
    """

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        img_size: int | Sequence[int] | None = None,
        model_args: Mapping | None = None,
        out_indices: Sequence[int] = (-1,),
        with_cls: bool = False,
        out: str = 'maps',
        final_norm: bool = True,
        drop_path_rate: float = 0,
        frozen_stages: int = -1,
        lora: dict | None = None,
        with_cp: bool = False,
        held_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        given = _read_arguments(model_args, drop_path_rate)
        family, patch_size, arguments = _plan(model, given, img_size)
        vit = create_timm_model(model, **arguments)
        depth, width = len(vit.blocks), vit.embed_dim
        dims, strides = [width] * depth, [patch_size] * depth
        super().__init__(dims, strides, out_indices, with_cls, out, init_cfg)
        if pretrained and init_cfg is not None:
            raise ValueError(
                f'TimmAnchor of {model} with pretrained=True and init_cfg={init_cfg}; '
                'allowed is one of them (config keys: pretrained, init_cfg)'
            )
        self.model, self.pretrained, self.arguments = model, pretrained, arguments
        self.family, self.patch_size = family(vit), patch_size
        self.num_prefix, self.has_cls = self.family.num_prefix, self.family.has_cls
        check_with_cls(with_cls, [self])
        self.frozen_stages = check_frozen_stages(frozen_stages, depth)
        self.with_cp = with_cp
        held = check_held_blocks(held_blocks, depth)
        self.vit = vit
        _keep_features(vit, held, final_norm)
        if not embedding:
            _drop_embedding(vit, self.family.shared)
        if lora is not None:
            self._add_lora(**read_lora(lora))
        self.freeze()

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the patches that it is built for."""
        return self.family.grid

    @property
    def blocks(self) -> nn.ModuleList:
        """The blocks of timm's model."""
        return self.vit.blocks

    def init_weights(self) -> None:
        """Load the weights that ``pretrained`` or ``init_cfg`` ask for.

        Raises:
            ValueError: If they cannot be fetched or read, or do not fit.
        """
        if self.pretrained:
            loaded = create_timm_model(self.model, pretrained=True, **self.arguments)
            weights = loaded.state_dict()
            self.vit.load_state_dict(
                {k: weights[k] for k in self.vit.state_dict() if '.lora_' not in k},
                strict=False,
            )
        elif self.init_cfg is not None:
            _load_file(self.vit, self.init_cfg)
            log_timm_licence(self.vit)
        self.is_init = True

    def train(self, mode: bool = True) -> TimmAnchor:
        """Set the mode of all parts but the frozen ones, which stay in eval mode.

        So does a rotary embedding, whose coordinates are never augmented.
        """
        super().train(mode)
        if self.frozen_stages >= 0:
            self.vit.eval()
            self.vit.blocks[self.frozen_stages :].train(mode)
            self.vit.norm.train(mode and self.frozen_stages < self.depth)
        for name in self.family.shared:
            if getattr(self.vit, name, None) is not None:
                getattr(self.vit, name).eval()
        return self

    def embed(self, images: Tensor) -> TokenState:
        """See :meth:`Anchor.embed`. Images are padded right and below to whole patches.

        Raises:
            ValueError: If an image is smaller than a patch.
        """
        height, width = images.shape[-2:]
        if min(height, width) < self.patch_size:
            raise ValueError(
                f'images of {height}x{width} pixels are smaller than a patch; allowed '
                f'is {self.patch_size} or more each way (config key: model)'
            )
        grid = grid_of((height, width), self.patch_size)
        pad_h, pad_w = -height % self.patch_size, -width % self.patch_size
        if pad_h or pad_w:
            images = F.pad(images, (0, pad_w, 0, pad_h))
        return TokenState(self.family.embed(images, grid), grid)

    def run_layers(self, i: int, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """See :meth:`TokenAnchor.run_layers`."""
        return self.family.run_block(i, tokens, grid)

    def run_norm(self, tokens: Tensor) -> Tensor:
        """See :meth:`TokenAnchor.run_norm`."""
        return self.vit.norm(tokens)

    @torch.no_grad()
    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        self.family.fix_grid(grid_of(size, self.patch_size))

    def layer_depth(self, param_name: str) -> tuple[int, int]:
        """See :meth:`Anchor.layer_depth`."""
        return super().layer_depth(param_name.removeprefix('vit.'))

    def _add_lora(self, rank: int, alpha: float, targets: Sequence[str]) -> None:
        self.requires_grad_(False)
        for block in self.blocks:
            if isinstance(block, nn.Identity):
                continue
            for name in targets:
                plain = getattr(block.attn, name, None)
                # EVA's and BEiT's attention reads the weight of qkv and adds a bias.
                read = name == 'qkv' and getattr(block.attn, 'q_bias', None) is not None
                if type(plain) is not nn.Linear or read:
                    raise ValueError(
                        f'lora.targets={tuple(targets)} of {self.model}, whose '
                        f'attention calls no linear layer {name}; allowed are the '
                        "others of ('qkv', 'proj') (config key: lora.targets)"
                    )
                setattr(block.attn, name, LoRALinear.of(plain, rank, alpha))


def _read_arguments(model_args: Mapping | None, drop_path_rate: float) -> dict:
    """Arguments of ``timm.create_model``, without name and size."""
    given = dict(model_args or {})
    wrong = sorted({*_OWN_KEYS, 'patch_drop_rate'} & set(given))
    if wrong or not 0 <= drop_path_rate < 1:
        raise ValueError(
            f'model_args with the keys {wrong}, drop_path_rate={drop_path_rate} of '
            f'TimmAnchor; {", ".join(_OWN_KEYS)} are not for model_args, patches are '
            'never dropped, and drop path rates are from 0 to below 1 (config keys: '
            'model_args, drop_path_rate)'
        )
    if drop_path_rate:
        given['drop_path_rate'] = drop_path_rate
    return dict(given, num_classes=0)


def _plan(
    model: str, arguments: Mapping, img_size: int | Sequence[int] | None
) -> tuple[type[TimmFamily], int, dict]:
    """Family and patch size of a model, and all arguments to build it with.

    Which class it is only a built model tells; on the meta device that costs nothing.
    """
    with torch.device('meta'):
        sketch = create_timm_model(model, **arguments)
    name = type(sketch).__name__
    if name not in TIMM_FAMILIES:
        raise ValueError(
            f'{model} is a {name} of timm; TimmAnchor runs the classes '
            f'{sorted(TIMM_FAMILIES)}; docs/families.md shows how to add another '
            '(config key: model)'
        )
    patch_size = _patch_size(model, sketch)
    family, size = TIMM_FAMILIES[name], {}
    if img_size is not None:
        grid = grid_of(img_size, patch_size)
        size['img_size'] = tuple(side * patch_size for side in grid)
    return family, patch_size, {**family.arguments, **arguments, **size}


def _patch_size(model: str, vit: nn.Module) -> int:
    height, width = vit.patch_embed.feat_ratio(as_scalar=False)
    if height != width:
        raise ValueError(
            f'{model} has patches of {height}x{width} pixels; allowed are square ones '
            '(config keys: model, model_args.patch_size)'
        )
    return height


def _keep_features(vit: nn.Module, held: Collection[int], final_norm: bool) -> None:
    """Leave out blocks that are not held, and the classifier."""
    blocks = enumerate(vit.blocks)
    vit.blocks = nn.ModuleList(b if i in held else nn.Identity() for i, b in blocks)
    for name in _HEADS:
        if hasattr(vit, name):
            setattr(vit, name, nn.Identity())
    if not (final_norm and len(vit.blocks) - 1 in held and hasattr(vit, 'norm')):
        vit.norm = nn.Identity()


def _drop_embedding(vit: nn.Module, shared: Collection[str]) -> None:
    for name, _ in list(vit.named_children()):
        if name not in ('blocks', 'norm', *shared):
            setattr(vit, name, nn.Identity())
    for name, _ in list(vit.named_parameters(recurse=False)):
        setattr(vit, name, None)


def _load_file(vit: nn.Module, init_cfg: Mapping) -> None:
    """Load a checkpoint, changed by timm's filter for the class of the model."""
    source = {k: v for k, v in init_cfg.items() if k != 'type'}
    known = {'checkpoint'} <= set(source) <= {'checkpoint', 'prefix'}
    if init_cfg['type'] != 'Pretrained' or not known:
        raise ValueError(
            f'init_cfg={dict(init_cfg)} of TimmAnchor; allowed is type Pretrained with '
            'a checkpoint and a prefix (config key: init_cfg)'
        )
    checkpoint = source['checkpoint']
    weights = select_prefix(read_weights(checkpoint), source.get('prefix', ''))
    convert = getattr(sys.modules[type(vit).__module__], 'checkpoint_filter_fn', None)
    try:
        if convert is not None:
            weights = convert(weights, vit)
        result = vit.load_state_dict(weights, strict=False)
    except Exception as error:
        # timm's filters meet files that they were not written for.
        why = ' '.join(line.strip() for line in str(error).splitlines()[:2])
        raise ValueError(_misfit(checkpoint, why)) from error
    missing = [k for k in result.missing_keys if '.lora_' not in k]
    left = [k for k in result.unexpected_keys if k.split('.')[0] not in _HEADS]
    wrong = [k for k in [*missing, *left] if k.startswith(('blocks.', 'patch_embed.'))]
    if wrong:
        what = 'lacks' if wrong[0] in missing else 'has'
        raise ValueError(_misfit(checkpoint, f'it {what} {wrong[0]}'))
    log_keys(checkpoint, 'missing', missing)
    log_keys(checkpoint, 'unexpected', left)


def _misfit(checkpoint: str, why: str) -> str:
    return (
        f'checkpoint {checkpoint} (config keys: init_cfg.checkpoint, init_cfg.prefix) '
        f'does not fit: {why}'
    )
