"""The classifier of one anchor."""

import re

from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.nn import functional as F

from snnet_mm.anchors import TokenState
from snnet_mm.anchors.pretrained import (
    Weights,
    load_into,
    pretrained_options,
    select_prefix,
)
from snnet_mm.utils import check

POOLINGS = ('cls', 'mean', 'norm-mean')
NORMS = ('LN', 'BN', None)
# Classifier names in other code, replaced in this order.
_RENAMES = (
    (r'^fc_norm\.', 'norm.'),  # timm and the MAE family, for averaged patches
    (r'^head\.(norm|bn)\.', 'norm.'),  # ConvNeXt, LeViT
    (r'^head_dist\.bn\.', 'norm_dist.'),
    (r'^head\.(fc|linear)\.', 'head.'),  # Swin and ConvNeXt, LeViT
    (r'^head_dist\.linear\.', 'head_dist.'),
    (r'^fc\.', 'head.'),  # ResNet
    (r'^classifier\.', 'head.'),  # MobileNetV3
    (r'^conv_head\.', 'hidden.'),
)


class AnchorClassifier(BaseModule):
    """The final norm and the linear classifier of one anchor.

    Args:
        pooling: ``'cls'`` for the cls token, ``'mean'`` for the mean of all patches
            (ConvNeXt, LeViT, ResNet), ``'norm-mean'`` to normalise patches before the
            mean (Swin).
        norm: ``'LN'``, ``'BN'`` (LeViT) or None (ResNet).
        hidden: Width of a hard-swish layer before the classifier (MobileNetV3), or 0.
        distilled: Whether the logits are the mean of two classifiers, each with its own
            norm, as in timm's LeViT outside training.
        init_cfg: With type ``'Pretrained'``, ``checkpoint`` and ``prefix``, loads any
            checkpoint that anchors can load.
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
        check(pooling in POOLINGS, 'head.pooling', pooling, POOLINGS)
        norms = ('LN',) if pooling == 'norm-mean' else NORMS
        check(norm in norms, 'head.anchor_heads.norm', norm, norms)
        single = not (hidden and distilled)
        check(single, 'head.anchor_heads.hidden', hidden, '0 for a distilled head')
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
        for linear in self.modules():
            if isinstance(linear, nn.Linear):
                nn.init.trunc_normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)

    def pool(self, feats: TokenState) -> Tensor:
        """Pool a final state to ``(B, C)``, before the norm that follows pooling."""
        if self.pooling == 'cls':
            has_cls = feats.num_prefix > 0
            key = 'head.pooling, backbone.anchors.cls_token'
            check(has_cls, key, 'cls', "'mean' for anchors without prefix tokens")
            return feats.tokens[:, 0]
        patches = feats.patches
        if self.pooling == 'norm-mean':
            patches = self.norm(patches)
        return patches.mean(1)

    def pre_logits(self, feats: TokenState, norm: bool = True) -> Tensor:
        """Return the classifier's input ``(B, C)``; ``norm=False`` skips the norm."""
        normed = self.pool(feats)
        if norm and self.pooling != 'norm-mean':
            normed = self.norm(normed)
        return normed if self.hidden is None else F.hardswish(self.hidden(normed))

    def forward(self, feats: TokenState, norm: bool = True) -> Tensor:
        logits = self.head(self.pre_logits(feats, norm))
        if not self.distilled:
            return logits
        return (logits + self.head_dist(self.norm_dist(self.pool(feats)))) / 2

    def init_weights(self) -> None:
        options = pretrained_options(self.init_cfg)
        if options is None:
            super().init_weights()
            return
        prefix, own = options.get('prefix', ''), self.state_dict()

        def adapt(weights: Weights) -> Weights:
            weights = classifier_weights(select_prefix(weights, prefix))
            return {k: v for k, v in weights.items() if k in own}

        key = 'head.anchor_heads.init_cfg.checkpoint, head.num_classes'
        load_into(self, options['checkpoint'], key, adapt=adapt)
        self.is_init = True


def classifier_weights(weights: Weights) -> dict[str, Tensor]:
    """Rename the classifier weights of a whole network to our names."""
    for theirs, ours in _RENAMES:
        renamed = {k: re.sub(theirs, ours, k) for k in weights if re.match(theirs, k)}
        # Another layer may already use our name, such as a norm of all tokens.
        others = {k: v for k, v in weights.items() if k not in renamed}
        weights = others | {ours: weights[k] for k, ours in renamed.items()}
    # A hidden layer may be a 1x1 convolution on pooled features.
    return {k: v.flatten(1) if v.ndim == 4 else v for k, v in weights.items()}
