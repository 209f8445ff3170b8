"""The classification head of stitched backbones."""

from collections.abc import Iterator, Sequence

import torch
from mmengine.model import ModuleList
from mmpretrain.models.heads import ClsHead
from mmpretrain.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import TokenState
from snnet_mm.stitching import Stitch, StitchingSpace
from snnet_mm.stitching.routes import ANCHOR_KIND
from snnet_mm.utils import check

from .anchor_classifier import AnchorClassifier

KEYS = 'head.anchor_heads, backbone.anchors'


@MODELS.register_module()
class StitchedClsHead(ClsHead):
    """A final norm and a classifier per anchor (SN-Netv2, section 5.1).

    Requires a backbone with ``out='end'``. A stitch uses the head of the anchor that it
    ends in, a new model the last head.

    Args:
        anchor_heads: Arguments of :class:`AnchorClassifier`, one dict per anchor:
            ``in_channels``, ``init_cfg`` for pretrained weights, and overrides of the
            common settings. None if no stitch ends in the anchor.
        frozen: Whether to freeze the heads in eval mode, e.g. to train only adapters.
        norm_stitches: Whether stitches apply the final norm. If False, only anchors do,
            as in the authors' trained SN-Netv1 of DeiT-Ti/S/B.
        of_slowest: Whether all stitches use the head of the slowest anchor. Requires a
            backbone with ``out='maps', with_cls=True``, which projects the maps of
            faster anchors to the slowest one's width, as in the authors' SN-Netv1 of
            anchors of unequal depth.
    """

    def __init__(
        self,
        num_classes: int,
        anchor_heads: Sequence[dict | None] = (),
        pooling: str = 'cls',
        norm_eps: float = 1e-6,
        frozen: bool = False,
        norm_stitches: bool = True,
        of_slowest: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        expected = 'one dict per anchor, such as dict(in_channels=384)'
        check(any(anchor_heads), 'head.anchor_heads', anchor_heads, expected)
        self.num_classes, self.of_slowest = num_classes, of_slowest
        defaults = dict(num_classes=num_classes, pooling=pooling, norm_eps=norm_eps)
        self.anchor_heads = ModuleList(
            head and AnchorClassifier(**(defaults | head)) for head in anchor_heads
        )
        self._active = max(a for a, head in enumerate(anchor_heads) if head)
        heads = [head for head in self.anchor_heads if head is not None]
        normed = any(h.distilled or h.pooling == 'norm-mean' for h in heads)
        known = norm_stitches or not normed
        expected = "True for heads that are distilled, or with pooling='norm-mean'"
        check(known, 'head.norm_stitches', norm_stitches, expected)
        self.norm_stitches, self._normed = norm_stitches, True
        self.frozen = frozen
        if frozen:
            self.anchor_heads.requires_grad_(False)

    def train(self, mode: bool = True) -> 'StitchedClsHead':
        super().train(mode)
        if self.frozen:
            self.anchor_heads.eval()
        return self

    def check_space(self, space: StitchingSpace) -> None:
        """Raise unless there is one entry per anchor; others would never be trained."""
        held, needed = len(self.anchor_heads), len(space.depths)
        expected = f'one for each of the {needed} anchors of the backbone'
        check(held == needed, KEYS, f'heads for {held} anchors', expected)

    def on_stitch(self, stitch: Stitch) -> None:
        """Activate the head of a stitch; raise if it is missing."""
        held = [a for a, head in enumerate(self.anchor_heads) if head is not None]
        end = self._anchor_of(stitch)
        expected = f'one for anchor {end}, in which stitch {stitch.id} ends'
        check(end in held, KEYS, f'heads for anchors {held}', expected)
        self._active, self._normed = end, self._has_norm(stitch)

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Yield the parameters of the heads that a stitch does not run."""
        for a, head in enumerate(self.anchor_heads):
            if head is not None and a != self._anchor_of(stitch):
                yield from head.parameters()
            elif head is not None and not self._has_norm(stitch):
                yield from head.norm.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of this head, reduced to the anchor of a stitch."""
        config = dict(config)
        heads, end = config['anchor_heads'], self._anchor_of(stitch)
        heads = [h if a == end else None for a, h in enumerate(heads)]
        config.pop('norm_stitches', None)
        if not self._has_norm(stitch):
            heads[end] = dict(heads[end], norm=None)
        return config | dict(anchor_heads=heads)

    def _has_norm(self, stitch: Stitch) -> bool:
        return self.norm_stitches or stitch.kind == ANCHOR_KIND

    def pre_logits(self, feats: TokenState | tuple) -> Tensor:
        feats = self._as_state(feats)
        return self._head_for(feats).pre_logits(feats, self._normed)

    def forward(self, feats: TokenState | tuple) -> Tensor:
        feats = self._as_state(feats)
        logits = self._head_for(feats)(feats, self._normed)
        if self.training and torch.is_grad_enabled() and not logits.requires_grad:
            raise ValueError(
                'the stitch has no trainable parameters: its blocks, stitching layers '
                'and head are frozen; sample only stitches with adapters, or unfreeze '
                'some (config keys: StitchSamplingHook.sampler.anchors, '
                'head.frozen, frozen_stages)'
            )
        return logits

    def _anchor_of(self, stitch: Stitch) -> int:
        return len(self.anchor_heads) - 1 if self.of_slowest else stitch.end_anchor

    def _as_state(self, feats: TokenState | tuple) -> TokenState:
        if not self.of_slowest:
            return feats
        fits = isinstance(feats, tuple) and isinstance(feats[-1], tuple)
        expected = "'maps' with with_cls=True, for a head with of_slowest=True"
        check(fits, 'backbone.out', type(feats).__name__, expected)
        patches, cls = feats[-1]
        tokens = torch.cat([cls[:, None], patches.flatten(2).transpose(1, 2)], dim=1)
        return TokenState(tokens, tuple(patches.shape[2:]))

    def _head_for(self, feats: TokenState) -> AnchorClassifier:
        expected = (
            "'end': StitchedClsHead reads the final state of a backbone, not its maps"
        )
        check(isinstance(feats, TokenState), 'backbone.out', 'maps', expected)
        head, width = self.anchor_heads[self._active], feats.tokens.shape[-1]
        ok, key = width == head.in_channels, f'anchor_heads.{self._active}.in_channels'
        check(ok, f'head.{key}', head.in_channels, f'{width}, the width of the anchor')
        return head
