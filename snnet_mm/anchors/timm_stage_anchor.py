"""Networks of timm that have stages, as anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mmengine.registry import MODELS
from mmengine.utils import to_2tuple
from torch import Tensor, nn

from snnet_mm.utils import check, register
from snnet_mm.utils.timm_models import (
    convert_timm_weights,
    create_timm_model,
    timm_family,
)

from .base import Anchor, TokenState
from .pretrained import Weights
from .stage_families import FAMILIES

# Tables that old files hold.
_DERIVED = ('relative_position_index', 'attn_mask', 'attention_bias_idxs')


@register(MODELS)
class TimmStageAnchor(Anchor):
    """A network of timm that has stages: an anchor, or a backbone by itself.

    Swin (v1 and v2), ResNet, ConvNeXt, LeViT and MobileNetV3, by their names in timm;
    for others see :data:`snnet_mm.anchors.stage_families.FAMILIES`. Blocks are numbered
    through all stages, and what changes the stride belongs to the first block after
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
        drop_path_rate: Stochastic depth, distributed as in timm.
        init_cfg: With ``type='Pretrained'`` the checkpoint is ``'timm://<name>'``, a
            file of timm or of the family's authors, or an mm checkpoint.
        **kwargs: See :class:`Anchor`.
    """

    def __init__(
        self,
        model: str,
        pretrained: bool = False,
        model_args: Mapping | None = None,
        img_size: int | Sequence[int] | None = None,
        drop_path_rate: float = 0,
        init_cfg: dict | None = None,
        **kwargs,
    ) -> None:
        if pretrained:
            check(init_cfg is None, 'init_cfg', init_cfg, 'None with pretrained=True')
            init_cfg = dict(type='Pretrained', checkpoint=f'timm://{model}')
        family = FAMILIES[timm_family(model, FAMILIES)]
        settings = dict(model_args or {}, drop_path_rate=drop_path_rate)
        if family.sized and img_size is not None:
            settings['img_size'] = tuple(to_2tuple(img_size))
        net = create_timm_model(model, **settings)
        names = {id(t): name for name, t in net.state_dict(keep_vars=True).items()}
        parts = family.split(net)
        blocks = [block for stage in parts.stages for block in stage]
        info = net.feature_info[-len(parts.stages) :]
        dims, strides = (
            [i[key] for i, stage in zip(info, parts.stages, strict=True) for _ in stage]
            for key in ('num_chs', 'reduction')
        )
        super().__init__(parts.widths or dims, strides, init_cfg=init_cfg, **kwargs)
        self.model, self._settings = model, settings
        size = img_size or net.pretrained_cfg['input_size'][1:]
        self.input_size = tuple(to_2tuple(size))
        self._layout, self._one_size = parts.layout, parts.one_size
        self._fix_grid = parts.fix_grid
        self.stem = parts.stem if self.has_embedding else nn.Identity()
        self.blocks = nn.ModuleList(
            block if i in self.kept_blocks else nn.Identity()
            for i, block in enumerate(blocks)
        )
        own = self.state_dict(keep_vars=True)
        self._names = {names[id(t)]: name for name, t in own.items()}
        self.freeze()

    def embed(self, images: Tensor) -> TokenState:
        """See :meth:`Anchor.embed`."""
        self._check_size(images.shape[-2:])
        return _to_state(self.stem(images), self._layout)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        """See :meth:`Anchor.run_block`."""
        x = state.tokens
        if self._layout == 'NCHW':
            x = _to_map(state)
        elif self._layout == 'NHWC':
            x = x.unflatten(1, state.grid)
        x = self.maybe_checkpoint(self.blocks[i], x)
        if x.ndim == 3:
            return TokenState(x, self._grid_after(i, state.grid))
        return _to_state(x, self._layout)

    def to_feature_map(self, state: TokenState) -> Tensor:
        """See :meth:`Anchor.to_feature_map`."""
        return _to_map(state).contiguous()

    def fix_input_size(self, size: tuple[int, int]) -> None:
        """See :meth:`Anchor.fix_input_size`."""
        self._check_size(size)
        grid = tuple(-(-x // self.block_strides[0]) for x in size)
        for i, block in enumerate(self.blocks):
            grid = self._grid_after(i, grid)
            if self._fix_grid is not None and not isinstance(block, nn.Identity):
                self._fix_grid(block, grid)
        self.input_size = tuple(size)

    def adapt_weights(self, weights: Weights) -> Weights:
        """Rename weights in our names, timm's, or those of a family's authors."""
        own, theirs = self.state_dict(), self._names
        if own.keys() <= weights.keys():
            return weights
        fits = all(
            name in weights and weights[name].shape == own[ours].shape
            for name, ours in theirs.items()
            if not name.endswith('num_batches_tracked')
        )
        if not fits:
            net = create_timm_model(self.model, **self._settings)
            weights = convert_timm_weights(net, weights)
        # The classifier may be left over, and old tables, but no blocks.
        parts = {name.split('.')[0] for name in theirs}
        return {
            theirs.get(k, k): v
            for k, v in weights.items()
            if k.split('.')[0] in parts and not k.endswith(_DERIVED)
        }

    def _check_size(self, size: Sequence[int]) -> None:
        right = not self._one_size or tuple(size) == self.input_size
        allowed = f'{self.input_size} alone, as {self.model} is built for it'
        check(right, 'anchors.img_size', tuple(size), allowed)

    def _grid_after(self, i: int, grid: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns after block i, from those before it."""
        ratio = self.block_strides[i] // self.block_strides[max(i - 1, 0)]
        return -(-grid[0] // ratio), -(-grid[1] // ratio)


def _to_state(x: Tensor, layout: str) -> TokenState:
    """The tokens of a map, which are a view of it."""
    if layout == 'NHWC':
        return TokenState(x.flatten(1, 2), tuple(x.shape[1:3]))
    return TokenState(x.flatten(2).transpose(1, 2), tuple(x.shape[2:]))


def _to_map(state: TokenState) -> Tensor:
    """The map ``(B, C, H, W)`` of which a state has the tokens; a view of them."""
    return state.tokens.transpose(1, 2).unflatten(2, state.grid)
