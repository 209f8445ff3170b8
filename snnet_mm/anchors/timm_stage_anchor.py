"""Networks of timm that have stages, as anchors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Mapping, Sequence

import torch
from mmengine.logging import print_log
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from snnet_mm.utils.timm_models import create_timm_model, timm_family

from .base import Anchor, TokenState
from .plain_vit_settings import check_frozen_stages, check_held_blocks
from .pretrained import pretrained_source, read_weights, select_prefix
from .stage_families import FAMILIES

# Tables that old files hold.
_DERIVED = ('relative_position_index', 'attn_mask', 'attention_bias_idxs')


@MODELS.register_module()
class TimmStageAnchor(Anchor):
    """A network of timm that has stages: an anchor, or a backbone by itself.

    Swin (v1 and v2), ResNet, ConvNeXt, LeViT and MobileNetV3, by their names in timm;
    for others see :data:`snnet_mm.anchors.stage_families.FAMILIES`. Blocks are numbered
    through all stages, and what changes the stride belongs to the first block behind
    it. It ends with the last block: pooling, norm and classifier of timm's network
    belong to the head.

    Args:
        model: Name of the network, such as ``'swin_tiny_patch4_window7_224'``.
        pretrained: Whether the weights are those of this name in timm, fetched when
            training starts; the same as ``init_cfg=dict(type='Pretrained',
            checkpoint='timm://<model>')``.
        model_args: What else ``timm.create_model`` takes, such as ``dict(embed_dim=32,
            depths=(2, 2, 6, 2), num_heads=(1, 2, 4, 8), window_size=4)``.
        img_size: Pixels, or height and width, of the images. Swin takes other sizes
            too, with the windows of this one; ResNet and ConvNeXt do not depend on it;
            LeViT takes no other. By default that of timm's weights.
        out_indices: Blocks whose maps ``forward`` returns.
        out: ``'maps'``, or ``'end'`` for the final state, which is classified.
        drop_path_rate: Stochastic depth, distributed as in timm.
        frozen_stages: -1 trains everything, 0 freezes the stem, k the stem and the
            first k **blocks**. What is frozen has no gradient and stays in eval mode.
        with_cp: Whether blocks are run again in the backward pass instead of keeping
            their activations. Batch norms then see every batch twice.
        held_blocks: Hold only these blocks, under their numbers, for a network that
            runs no others; by default all.
        embedding: Whether the stem is held.
        init_cfg: mmengine's initialisation config; ``type='Pretrained'`` with the keys
            ``checkpoint``, which is ``'timm://<name>'``, a file of timm or of the
            family's authors, or an mm checkpoint, and ``prefix``.

    Raises:
        ValueError: If timm has no such network or it is of another family, or for an
            out index, frozen stage or held block past the depth, or both
            ``pretrained`` and ``init_cfg``.
        ImportError: If timm is missing.
    """

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        model_args: Mapping | None = None,
        img_size: int | Sequence[int] | None = None,
        out_indices: Sequence[int] = (-1,),
        out: str = 'maps',
        drop_path_rate: float = 0,
        frozen_stages: int = -1,
        with_cp: bool = False,
        held_blocks: Collection[int] | None = None,
        embedding: bool = True,
        init_cfg: dict | None = None,
    ) -> None:
        if pretrained:
            init_cfg = _from_timm(model, init_cfg)
        family = FAMILIES[timm_family(model, FAMILIES)]
        settings = dict(model_args or {}, drop_path_rate=drop_path_rate)
        if family.sized and img_size is not None:
            settings['img_size'] = _both(img_size)
        net = _create(model, settings)
        names = {id(t): name for name, t in net.state_dict(keep_vars=True).items()}
        parts = family.take_apart(net)
        blocks = [block for stage in parts.stages for block in stage]
        info = net.feature_info[-len(parts.stages) :]
        dims, strides = (
            [i[key] for i, stage in zip(info, parts.stages, strict=True) for _ in stage]
            for key in ('num_chs', 'reduction')
        )
        dims = parts.widths or dims
        super().__init__(dims, strides, out_indices, out=out, init_cfg=init_cfg)
        self.model, self._settings = model, settings
        self.input_size = _both(img_size or net.pretrained_cfg['input_size'][1:])
        self._layout, self._one_size = parts.layout, parts.one_size
        self._fix_grid = parts.fix_grid
        self.frozen_stages = check_frozen_stages(frozen_stages, self.depth)
        self.with_cp = with_cp
        held = check_held_blocks(held_blocks, self.depth)
        self.stem = parts.stem if embedding else nn.Identity()
        self.blocks = nn.ModuleList(
            block if i in held else nn.Identity() for i, block in enumerate(blocks)
        )
        own = self.state_dict(keep_vars=True)
        self._names = {names[id(t)]: name for name, t in own.items()}
        self.freeze()

    def init_weights(self) -> None:
        """Load pretrained weights if ``init_cfg`` says so.

        Raises:
            ValueError: If they are missing or of another network.
        """
        source = pretrained_source(self.init_cfg, 'prefix')
        if source is None:
            super().init_weights()
            return
        try:
            loaded = read_weights(source['checkpoint'])
            weights = select_prefix(loaded, source.get('prefix', ''))
            self._load(weights)
        except ValueError as error:
            raise ValueError(
                f'checkpoint {source["checkpoint"]} (config key: init_cfg.checkpoint) '
                f'does not fit: {error}'
            ) from error
        self.is_init = True

    def train(self, mode: bool = True) -> TimmStageAnchor:
        """Set the mode of all parts but the frozen ones, which stay in eval mode."""
        super().train(mode)
        if self.frozen_stages >= 0:
            self.stem.eval()
            self.blocks[: self.frozen_stages].eval()
        return self

    def embed(self, images: Tensor) -> TokenState:
        """See :meth:`Anchor.embed`.

        Raises:
            ValueError: If the network is for images of another size.
        """
        size = tuple(images.shape[-2:])
        if self._one_size and size != self.input_size:
            raise ValueError(
                f'images of {size[0]}x{size[1]} pixels; {self.model} is for '
                f'{self.input_size[0]}x{self.input_size[1]} alone (config key: '
                'anchors.img_size)'
            )
        return _to_state(self.stem(images), self._layout)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        """See :meth:`Anchor.run_block`."""
        x = state.tokens
        if self._layout == 'NCHW':
            x = _to_map(state)
        elif self._layout == 'NHWC':
            x = x.unflatten(1, state.grid)
        if self.with_cp and torch.is_grad_enabled():
            x = checkpoint(self.blocks[i], x, use_reentrant=False)
        else:
            x = self.blocks[i](x)
        if x.ndim == 3:
            return TokenState(x, self._grid_after(i, state.grid))
        return _to_state(x, self._layout)

    def to_feature_map(self, state: TokenState) -> Tensor:
        """See :meth:`Anchor.to_feature_map`."""
        return _to_map(state).contiguous()

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`.

        Raises:
            ValueError: If the network is for images of another size.
        """
        size = _both(size)
        if self._one_size and size != self.input_size:
            raise ValueError(
                f'a size of {size[0]}x{size[1]} pixels; {self.model} is for '
                f'{self.input_size[0]}x{self.input_size[1]} alone (config key: '
                'anchors.img_size)'
            )
        grid = tuple(-(-x // self.block_strides[0]) for x in size)
        for i, block in enumerate(self.blocks):
            grid = self._grid_after(i, grid)
            if self._fix_grid is not None and not isinstance(block, nn.Identity):
                self._fix_grid(block, grid)
        self.input_size = size

    def _grid_after(self, i: int, grid: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns after block i, from those before it."""
        ratio = self.block_strides[i] // self.block_strides[max(i - 1, 0)]
        return -(-grid[0] // ratio), -(-grid[1] // ratio)

    def _load(self, weights: Mapping[str, Tensor]) -> None:
        """Load weights in our names, timm's, or those of a family's authors."""
        own = self.state_dict()
        if not own.keys() <= weights.keys():
            weights = self._from_timm(weights)
        # Old files do not have what batch norms count, which changes nothing.
        optional = {k for k in own if k.endswith('num_batches_tracked')}
        own = {k: v for k, v in own.items() if k in weights or k not in optional}
        missing = [k for k in own if k not in weights]
        if missing:
            raise ValueError(
                f'it has no {missing[0]}, and {len(missing) - 1} others are missing, '
                f'for {self.model}; there are {list(weights)[:3]} (config keys: model, '
                'model_args, init_cfg.prefix)'
            )
        for key, value in own.items():
            if value.shape != weights[key].shape:
                raise ValueError(
                    f'{key} has shape {tuple(weights[key].shape)}, that of the anchor '
                    f'has {tuple(value.shape)} (config keys: model, model_args)'
                )
        left = [k for k in weights if k not in own]
        self._refuse([k for k in left if k.split('.')[0] in ('stem', 'blocks')])
        if left:
            print_log(
                f'unexpected keys {left}', logger='current', level=logging.WARNING
            )
        self.load_state_dict({k: weights[k] for k in own}, strict=False)

    def _from_timm(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights in our names, those of the classifier left out."""
        own = self.state_dict()
        fits = all(
            theirs in weights and weights[theirs].shape == own[ours].shape
            for theirs, ours in self._names.items()
            if not theirs.endswith('num_batches_tracked')
        )
        if not fits:
            net = _create(self.model, self._settings)
            convert = getattr(
                sys.modules[type(net).__module__], 'checkpoint_filter_fn', None
            )
            weights = convert(dict(weights), net) if convert else weights
        # The classifier may be left over, and old tables, but no blocks.
        parts = {theirs.split('.')[0] for theirs in self._names}
        more = [k for k in weights if k not in self._names and k.split('.')[0] in parts]
        self._refuse([k for k in more if not k.endswith(_DERIVED)])
        return {
            ours: weights[theirs]
            for theirs, ours in self._names.items()
            if theirs in weights
        }

    def _refuse(self, keys: Sequence[str]) -> None:
        """Refuse weights of blocks that there are not."""
        if keys:
            raise ValueError(
                f'it has {keys[0]} and {len(keys) - 1} others, which {self.model} has '
                'not (config keys: model, model_args)'
            )


def _from_timm(model: str, init_cfg: dict | None) -> dict:
    """The ``init_cfg`` that ``pretrained=True`` stands for."""
    if init_cfg is not None:
        raise ValueError(
            f'pretrained=True and init_cfg={init_cfg} of {model}; allowed is one of '
            'them (config keys: pretrained, init_cfg)'
        )
    return dict(type='Pretrained', checkpoint=f'timm://{model}')


def _create(model: str, settings: Mapping) -> nn.Module:
    try:
        return create_timm_model(model, **settings)
    except ValueError as error:
        raise ValueError(
            f'{error} (config keys: model, model_args, img_size)'
        ) from error


def _to_state(x: Tensor, layout: str) -> TokenState:
    """The tokens of a map, which are a view of it."""
    if layout == 'NHWC':
        return TokenState(x.flatten(1, 2), tuple(x.shape[1:3]))
    return TokenState(x.flatten(2).transpose(1, 2), tuple(x.shape[2:]))


def _to_map(state: TokenState) -> Tensor:
    """The map ``(B, C, H, W)`` of which a state has the tokens; a view of them."""
    return state.tokens.transpose(1, 2).unflatten(2, state.grid)


def _both(size: int | Sequence[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)
