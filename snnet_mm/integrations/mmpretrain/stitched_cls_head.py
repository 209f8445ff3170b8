"""The classification head of stitched backbones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mmengine.model import BaseModule, ModuleList
from mmpretrain.models.heads import ClsHead
from mmpretrain.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import TokenState
from snnet_mm.anchors.pretrained import read_weights, select_prefix
from snnet_mm.stitching import Stitch

POOLINGS = ('cls', 'mean')


class EndClassifier(BaseModule):
    """The final norm and the linear classifier of one anchor, with timm's names.

    Args:
        in_channels: Width of the anchor.
        num_classes: Number of classes.
        norm_eps: Epsilon of the layer norm.
        init_cfg: mmengine's initialisation config; ``type='Pretrained'`` with the keys
            ``checkpoint`` and ``prefix`` loads norm and classifier of what
            :func:`snnet_mm.anchors.pretrained.read_weights` reads.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        norm_eps: float = 1e-6,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.norm = nn.LayerNorm(in_channels, eps=norm_eps)
        self.head = nn.Linear(in_channels, num_classes)
        nn.init.trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

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
        ends: Arguments of :class:`EndClassifier` for each anchor: ``in_channels`` and,
            for pretrained weights, ``init_cfg``. None for one that no stitch ends in.
        pooling: ``'cls'`` for the cls token, ``'mean'`` for the mean of all patches.
        norm_eps: Epsilon of the layer norms.
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
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        if num_classes < 1:
            raise ValueError(
                f'num_classes={num_classes}; allowed is 1 or more (config key: '
                'head.num_classes)'
            )
        if pooling not in POOLINGS:
            raise ValueError(
                f'pooling={pooling!r}; allowed are {POOLINGS} (config key: '
                'head.pooling)'
            )
        if not any(ends):
            raise ValueError(
                f'ends={list(ends)}; wanted is one dict per anchor, such as '
                'dict(in_channels=384) (config key: head.ends)'
            )
        self.num_classes, self.pooling = num_classes, pooling
        self.ends = ModuleList(
            end and EndClassifier(num_classes=num_classes, norm_eps=norm_eps, **end)
            for end in ends
        )
        self._end = max(a for a, end in enumerate(ends) if end)

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

    def pre_logits(self, feats: TokenState) -> Tensor:
        """The normalised token ``(B, C)`` that is classified.

        Raises:
            ValueError: If the backbone gives no final state, or one of another width
                than the anchor's end, or there is no cls token in it.
        """
        if not isinstance(feats, TokenState):
            raise ValueError(
                'StitchedClsHead reads the final state of a backbone, not its maps; '
                "set out='end' (config key: backbone.out)"
            )
        norm = self.ends[self._end].norm
        width = feats.tokens.shape[-1]
        if (width,) != norm.normalized_shape:
            raise ValueError(
                f'the route ends in an anchor of width {width}, but end {self._end} of '
                f'the head has in_channels={norm.normalized_shape[0]} (config keys: '
                f'head.ends.{self._end}.in_channels, backbone.anchors)'
            )
        num_patches = feats.grid[0] * feats.grid[1]
        if self.pooling == 'mean':
            return norm(feats.tokens[:, -num_patches:].mean(1))
        if feats.tokens.shape[1] == num_patches:
            raise ValueError(
                "pooling='cls' of anchors without prefix tokens; allowed is 'mean' "
                '(config keys: head.pooling, backbone.anchors.cls_token)'
            )
        return norm(feats.tokens[:, 0])

    def forward(self, feats: TokenState) -> Tensor:
        """Logits ``(B, num_classes)`` of a final state."""
        return self.ends[self._end].head(self.pre_logits(feats))


def _fitting(
    weights: dict[str, Tensor], wanted: dict[str, Tensor]
) -> dict[str, Tensor]:
    """The classifier's part of a whole ViT's weights.

    Where patches are averaged, timm and the MAE family call the norm ``fc_norm``.
    """
    if 'fc_norm.weight' in weights:
        weights = {k.replace('fc_norm.', 'norm.'): v for k, v in weights.items()}
    for key, own in wanted.items():
        if key not in weights:
            raise ValueError(f'it has no {key}; there are {list(weights)[-4:]}')
        if weights[key].shape != own.shape:
            raise ValueError(
                f'{key} has shape {tuple(weights[key].shape)}, that of the head has '
                f'{tuple(own.shape)} (config keys: head.num_classes, '
                'head.ends.in_channels); leave out init_cfg for another number of '
                'classes'
            )
    return {key: weights[key] for key in wanted}
