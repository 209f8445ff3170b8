"""The classification head of stitched backbones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import torch
from mmengine.model import BaseModule, ModuleList
from mmpretrain.models.heads import ClsHead
from mmpretrain.registry import MODELS
from torch import Tensor, nn
from torch.nn import functional as F

from snnet_mm.anchors import TokenState
from snnet_mm.anchors.pretrained import read_weights, select_prefix
from snnet_mm.stitching import Stitch, StitchingSpace

POOLINGS = ('cls', 'mean', 'norm-mean')
NORMS = ('LN', 'BN', None)


class EndClassifier(BaseModule):
    """The final norm and the linear classifier of one anchor.

    Args:
        in_channels: Width of the anchor.
        num_classes: Number of classes.
        pooling: ``'cls'`` for the cls token, ``'mean'`` for the mean of all patches
            (ConvNeXt, LeViT, ResNet), ``'norm-mean'`` for the mean of patches that the
            norm comes before (Swin).
        norm: ``'LN'`` for a layer norm, ``'BN'`` for a batch norm (LeViT), None for
            none (ResNet).
        norm_eps: Epsilon of the layer norm.
        hidden: Width of a layer with hard swish in front of the classifier
            (MobileNetV3); 0 for none.
        distilled: Whether the logits are the mean of two classifiers, each with its
            norm, as in timm's LeViT outside of training.
        init_cfg: mmengine's initialisation config; ``type='Pretrained'`` with the keys
            ``checkpoint`` and ``prefix`` loads norm and classifier of what
            :func:`snnet_mm.anchors.pretrained.read_weights` reads.

    Raises:
        ValueError: If the pooling or the norm is unknown, or the norm cannot come
            before the mean.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        pooling: str = 'cls',
        norm: str | None = 'LN',
        norm_eps: float = 1e-6,
        hidden: int = 0,
        distilled: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if pooling not in POOLINGS:
            raise ValueError(
                f'pooling={pooling!r}; allowed are {POOLINGS} (config keys: '
                'head.pooling, head.ends.pooling)'
            )
        if norm not in NORMS or (pooling == 'norm-mean' and norm != 'LN'):
            raise ValueError(
                f'norm={norm!r} with pooling={pooling!r}; allowed are {NORMS}, and '
                "with 'norm-mean' 'LN' (config keys: head.ends.norm, head.ends.pooling)"
            )
        self.in_channels, self.pooling = in_channels, pooling

        def new_norm() -> nn.Module:
            if norm == 'LN':
                return nn.LayerNorm(in_channels, eps=norm_eps)
            return nn.BatchNorm1d(in_channels) if norm == 'BN' else nn.Identity()

        width = hidden or in_channels
        self.norm, self.head = new_norm(), nn.Linear(width, num_classes)
        self.hidden = nn.Linear(in_channels, hidden) if hidden else None
        if distilled:
            self.norm_dist = new_norm()
            self.head_dist = nn.Linear(in_channels, num_classes)
        self.distilled = distilled
        for name, parameter in self.named_parameters():
            if name.startswith(('head', 'hidden')):
                (nn.init.zeros_ if parameter.ndim == 1 else _truncated)(parameter)

    def pool(self, feats: TokenState) -> Tensor:
        """What is classified, ``(B, C)``, without the norm that comes behind it.

        Raises:
            ValueError: If there is no cls token in a final state.
        """
        num_patches = feats.grid[0] * feats.grid[1]
        if self.pooling == 'cls':
            if feats.tokens.shape[1] == num_patches:
                raise ValueError(
                    "pooling='cls' of anchors without prefix tokens; allowed is 'mean' "
                    '(config keys: head.pooling, backbone.anchors.cls_token)'
                )
            return feats.tokens[:, 0]
        patches = feats.tokens[:, -num_patches:]
        if self.pooling == 'norm-mean':
            patches = self.norm(patches)
        return patches.mean(1)

    def pre_logits(self, feats: TokenState) -> Tensor:
        """The normalised token ``(B, C)`` that is classified; see :meth:`pool`.

        With a hidden layer, what that makes of it.
        """
        pooled = self.pool(feats)
        normed = pooled if self.pooling == 'norm-mean' else self.norm(pooled)
        return normed if self.hidden is None else F.hardswish(self.hidden(normed))

    def forward(self, feats: TokenState) -> Tensor:
        """Logits ``(B, K)`` of a final state."""
        logits = self.head(self.pre_logits(feats))
        if not self.distilled:
            return logits
        return (logits + self.head_dist(self.norm_dist(self.pool(feats)))) / 2

    def init_weights(self) -> None:
        """Load pretrained weights if ``init_cfg`` says so.

        Raises:
            ValueError: If they are missing, or of another width or number of classes.
        """
        if self.init_cfg is None or self.init_cfg['type'] != 'Pretrained':
            super().init_weights()
            return
        checkpoint = self.init_cfg['checkpoint']
        try:
            weights = read_weights(checkpoint)
            weights = select_prefix(weights, self.init_cfg.get('prefix', ''))
            self.load_state_dict(_fitting(weights, self.state_dict()))
        except ValueError as error:
            raise ValueError(
                f'the classifier in {checkpoint} (config key: head.ends.init_cfg) '
                f'does not fit: {error}'
            ) from error
        self.is_init = True


@MODELS.register_module()
class StitchedClsHead(ClsHead):
    """A final norm and a classifier per anchor (SN-Netv2, section 5.1).

    Reads the final state of a backbone with ``out='end'``. A stitch is classified by
    the anchor that it ends in, which :func:`snnet_mm.apis.set_stitch` tells the head;
    by default that is the last one.

    Args:
        num_classes: Number of classes.
        ends: Arguments of :class:`EndClassifier` for each anchor: ``in_channels``, for
            pretrained weights ``init_cfg``, and what else is its own. None for one
            that no stitch ends in.
        pooling: That of ends which do not say; see :class:`EndClassifier`.
        norm_eps: Epsilon of the layer norms of ends which do not say.
        frozen: Whether the ends are frozen, in eval mode, as where adapters alone are
            trained.
        **kwargs: See mmpretrain's ``ClsHead``.

    Raises:
        ValueError: If there is no class or no end, or the pooling is unknown.
    """

    def __init__(
        self,
        num_classes: int,
        ends: Sequence[dict | None],
        pooling: str = 'cls',
        norm_eps: float = 1e-6,
        frozen: bool = False,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if num_classes < 1:
            raise ValueError(
                f'num_classes={num_classes}; allowed is 1 or more (config key: '
                'head.num_classes)'
            )
        if not any(ends):
            raise ValueError(
                f'ends={list(ends)}; wanted is one dict per anchor, such as '
                'dict(in_channels=384) (config key: head.ends)'
            )
        self.num_classes = num_classes
        defaults = dict(num_classes=num_classes, pooling=pooling, norm_eps=norm_eps)
        self.ends = ModuleList(
            end and EndClassifier(**(defaults | end)) for end in ends
        )
        self._end = max(a for a, end in enumerate(ends) if end)
        self.frozen = frozen
        if frozen:
            self.ends.requires_grad_(False)

    def train(self, mode: bool = True) -> StitchedClsHead:
        """Set the mode of all parts but frozen ends, which stay in eval mode."""
        super().train(mode)
        if self.frozen:
            self.ends.eval()
        return self

    def check_space(self, space: StitchingSpace) -> None:
        """Refuse ends of anchors that are not there, which nothing would train.

        Raises:
            ValueError: If there is not one per anchor.
        """
        if len(self.ends) != len(space.depths):
            raise ValueError(
                f'the head has ends for {len(self.ends)} anchors, the backbone has '
                f'{len(space.depths)}; wanted is an end per anchor (config keys: '
                'head.ends, backbone.anchors)'
            )

    def on_stitch(self, stitch: Stitch) -> None:
        """Classify with the end of a stitch.

        Raises:
            ValueError: If there is none for the anchor that it ends in.
        """
        held = [a for a, end in enumerate(self.ends) if end is not None]
        if stitch.end_anchor not in held:
            raise ValueError(
                f'stitch {stitch.id} ends in anchor {stitch.end_anchor}, but the head '
                f'has ends for anchors {held}; wanted is one per anchor of the '
                'backbone (config keys: head.ends, backbone.anchors)'
            )
        self._end = stitch.end_anchor

    def idle_parameters(self, stitch: Stitch) -> Iterator[nn.Parameter]:
        """Parameters of the ends that a stitch does not run."""
        for a, end in enumerate(self.ends):
            if end is not None and a != stitch.end_anchor:
                yield from end.parameters()

    def config_of_stitch(self, config: dict, stitch: Stitch) -> dict:
        """Return the config of this head with the end of one stitch alone."""
        ends = enumerate(config['ends'])
        ends = [end if a == stitch.end_anchor else None for a, end in ends]
        return dict(config, ends=ends)

    def pre_logits(self, feats: TokenState) -> Tensor:
        """The normalised token ``(B, C)`` that is classified.

        Raises:
            ValueError: If the backbone gives no final state, or one of another width
                than the anchor's end, or there is no cls token in it.
        """
        return self._end_for(feats).pre_logits(feats)

    def forward(self, feats: TokenState) -> Tensor:
        """Logits ``(B, num_classes)`` of a final state; see :meth:`pre_logits`.

        Raises:
            ValueError: If a stitch is trained in which all is frozen.
        """
        logits = self._end_for(feats)(feats)
        if self.training and torch.is_grad_enabled() and not logits.requires_grad:
            raise ValueError(
                'a stitch is trained of which everything is frozen: blocks, stitching '
                'layers and its end; train only stitches with adapters, or thaw '
                'something (config keys: StitchSamplingHook.sampler.anchors, '
                'head.frozen, backbone.frozen, frozen_stages)'
            )
        return logits

    def _end_for(self, feats: TokenState) -> EndClassifier:
        if not isinstance(feats, TokenState):
            raise ValueError(
                'StitchedClsHead reads the final state of a backbone, not its maps; '
                "set out='end' (config key: backbone.out)"
            )
        end, width = self.ends[self._end], feats.tokens.shape[-1]
        if width != end.in_channels:
            raise ValueError(
                f'the route ends in an anchor of width {width}, but end {self._end} of '
                f'the head has in_channels={end.in_channels} (config keys: '
                f'head.ends.{self._end}.in_channels, backbone.anchors)'
            )
        return end


# What classifiers are called elsewhere, in this order; in ours norm and head.
_RENAMES = (
    (r'^fc_norm\.', 'norm.'),  # where timm and the MAE family average patches
    (r'^head\.(norm|bn)\.', 'norm.'),  # ConvNeXt, LeViT
    (r'^head_dist\.bn\.', 'norm_dist.'),
    (r'^head\.(fc|linear)\.', 'head.'),  # Swin and ConvNeXt, LeViT
    (r'^head_dist\.linear\.', 'head_dist.'),
    (r'^fc\.', 'head.'),  # ResNet
    (r'^classifier\.', 'head.'),  # MobileNetV3
    (r'^conv_head\.', 'hidden.'),
)


def _truncated(weight: Tensor) -> None:
    nn.init.trunc_normal_(weight, std=0.02)


def _fitting(
    weights: dict[str, Tensor], wanted: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The classifier's part of a whole network's weights."""
    for theirs, ours in _RENAMES:
        renamed = {k: re.sub(theirs, ours, k) for k in weights if re.match(theirs, k)}
        # What had our name before is something else, such as a norm of all tokens.
        others = {k: v for k, v in weights.items() if k not in renamed}
        weights = others | {ours: weights[k] for k, ours in renamed.items()}
    for key, own in wanted.items():
        if key not in weights:
            raise ValueError(f'it has no {key}; there are {list(weights)[-4:]}')
        if weights[key].ndim == 4:  # a 1x1 convolution of what is pooled
            weights[key] = weights[key].flatten(1)
        if weights[key].shape != own.shape:
            raise ValueError(
                f'{key} has shape {tuple(weights[key].shape)}, that of the head has '
                f'{tuple(own.shape)} (config keys: head.num_classes, '
                'head.ends.in_channels); leave out init_cfg for another number of '
                'classes'
            )
    return {key: weights[key] for key in wanted}
