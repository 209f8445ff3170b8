"""EoMT: queries run through the last blocks of a plain ViT, without a decoder."""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from mmdet.models.dense_heads import Mask2FormerHead
from mmdet.registry import MODELS, TASK_UTILS
from mmengine.logging import MessageHub
from mmengine.model import BaseModule
from torch import Tensor, nn

from snnet_mm.anchors import TokenState
from snnet_mm.utils import check, is_whole

# Settings of Mask2Former, whose losses sample more points by default.
LOSS_CLS = dict(type='mmdet.CrossEntropyLoss', loss_weight=2.0)
LOSS_MASK = dict(type='mmdet.CrossEntropyLoss', use_sigmoid=True, loss_weight=5.0)
LOSS_DICE = dict(type='mmdet.DiceLoss', naive_dice=True, eps=1.0, loss_weight=5.0)
ASSIGNER = dict(
    type='mmdet.HungarianAssigner',
    match_costs=[
        dict(type='mmdet.ClassificationCost', weight=2.0),
        dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
        dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0),
    ],
)
NO_OBJECT_WEIGHT = 0.1  # loss weight of the no-object class
DECAY = 0.9  # exponent of the masking schedule

Grid = tuple[int, int]
Maps = Sequence[Tensor | tuple[Tensor, Tensor]]


@MODELS.register_module()
class EoMTHead(Mask2FormerHead):
    """The head of "Your ViT is Secretly an Image Segmentation Model" (section 3).

    The backbone contains the first blocks of a plain ViT, the head its last blocks.
    In these blocks, learned queries precede the tokens of the backbone's last map. A
    linear layer predicts the class of a query. Its mask is the product of the query,
    after an MLP, and the patches, upscaled four times.

    During training, a query attends only to patches inside its mask, which is predicted
    before every block. All predictions get Mask2Former's losses. Masking is phased out
    block by block (:func:`mask_probability`), so inference needs no masks.

    Use as ``panoptic_head`` of mmdet's ``Mask2Former``; ``EoMTSegHead`` is for mmseg.

    Args:
        vit: Config of the last blocks: a plain ViT with a final norm, without
            embedding. ``init_cfg`` with ``blocks`` loads them from a whole ViT.
        num_things_classes, num_stuff_classes: Numbers of classes.
        num_queries: Number of queries. Default: 100.
        channels: Channels of the upscaled patches. Default: 128.
        num_points: Points sampled per mask for matching and losses. Default: 2048.
        train_cfg, test_cfg: Passed by the detector, unused.
    """

    def __init__(
        self,
        vit: dict,
        num_things_classes: int,
        num_stuff_classes: int = 0,
        num_queries: int = 100,
        channels: int = 128,
        num_points: int = 2048,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        BaseModule.__init__(self, init_cfg)
        check(is_whole(num_queries, 1), 'num_queries', num_queries, '1 or more')
        self.num_things_classes = num_things_classes
        self.num_stuff_classes = num_stuff_classes
        self.num_classes = num_things_classes + num_stuff_classes
        self.num_queries = num_queries
        self.train_cfg, self.test_cfg = train_cfg, test_cfg
        self.vit = MODELS.build(dict(vit, embedding=False))
        expected = 'a plain ViT without biases of relative positions'
        right = getattr(self.vit, 'takes_masks', False)
        check(right, 'vit.type', vit.get('type'), expected)
        self.vit.prepend(num_queries)
        dim = self.vit.block_dims[-1]
        self.queries = nn.Embedding(num_queries, dim)
        self.cls_embed = nn.Linear(dim, self.num_classes + 1)
        self.mask_embed = nn.Sequential(
            nn.Linear(dim, dim), nn.GELU(),
            nn.Linear(dim, dim), nn.GELU(),
            nn.Linear(dim, channels),
        )  # fmt: skip
        self.upscale = nn.Sequential(_twice(dim, channels), _twice(channels, channels))
        self.class_weight = [1.0] * self.num_classes + [NO_OBJECT_WEIGHT]
        self.loss_cls = MODELS.build(dict(LOSS_CLS, class_weight=self.class_weight))
        self.loss_mask, self.loss_dice = map(MODELS.build, (LOSS_MASK, LOSS_DICE))
        self.assigner = TASK_UTILS.build(ASSIGNER)
        self.sampler = TASK_UTILS.build(dict(type='mmdet.MaskPseudoSampler'))
        self.num_points = num_points
        self.oversample_ratio, self.importance_sample_ratio = 3.0, 0.75

    def init_weights(self) -> None:
        BaseModule.init_weights(self)

    def forward(
        self, x: Maps, batch_data_samples: Sequence | None = None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return class and mask logits; during training also before every block.

        Args:
            x: Backbone maps ``(B, C, h, w)``, or pairs of a map and a cls token
                ``(B, C)``, of which only the last is read; or the final state, with
                registers, of a backbone with ``out='end'``.
            batch_data_samples: Unused.

        Returns:
            Lists of ``(B, queries, classes + 1)`` and ``(B, queries, 4h, 4w)``.
        """
        if isinstance(x, TokenState):
            tokens, grid = x
        else:
            features, *cls = x[-1] if isinstance(x[-1], tuple) else x[-1:]
            patches, grid = TokenState.of_map(features)
            tokens = torch.cat([*(c[:, None] for c in cls), patches], 1)
        queries = self.queries.weight.expand(tokens.shape[0], -1, -1)
        tokens, found = torch.cat([queries, tokens], 1), []
        for i in range(self.vit.depth):
            mask = None
            if self.training:
                found.append(self._read(tokens, grid))
                mask = self._attended(tokens, grid, found[-1][1], i)
            run = partial(self.vit.run_layers, i)
            tokens = self.vit.maybe_checkpoint(run, tokens, grid, mask)
        found.append(self._read(tokens, grid))
        classes, masks = zip(*found, strict=True)
        return list(classes), list(masks)

    def _read(self, tokens: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        tokens = self.vit.trunk.norm(tokens)
        queries = tokens[:, : self.num_queries]
        patches = tokens[:, -grid[0] * grid[1] :].transpose(1, 2).unflatten(2, grid)
        masks = self.mask_embed(queries) @ self.upscale(patches).flatten(2)
        masks = masks.unflatten(2, (4 * grid[0], 4 * grid[1]))
        return self.cls_embed(queries), masks

    def loss_by_feat(
        self, all_cls_scores: list[Tensor], all_mask_preds: list[Tensor], *args
    ) -> dict[str, Tensor]:
        """Return mmdet's losses, in float32 under ``--amp``, too.

        In float16, the number of points of all masks, by which ``loss_mask`` is
        divided, exceeds the largest number: the loss would be 0 or NaN.
        """
        scores, masks = (
            [x.float() for x in xs] for xs in (all_cls_scores, all_mask_preds)
        )
        with torch.autocast(masks[0].device.type, enabled=False):
            return super().loss_by_feat(scores, masks, *args)

    @torch.no_grad()
    def _attended(self, tokens: Tensor, grid: Grid, masks: Tensor, i: int) -> Tensor:
        """Return a bool mask ``(B, 1, L, L)``: row attends to column where True."""
        batch, length, _ = tokens.shape
        allowed = tokens.new_ones(batch, 1, length, length, dtype=torch.bool)
        inside = F.interpolate(masks, grid, mode='bilinear').flatten(2) > 0
        share = mask_probability(i, self.vit.depth, progress())
        free = torch.rand(batch, self.num_queries, 1, device=tokens.device) >= share
        allowed[:, 0, : self.num_queries, -inside.shape[2] :] = inside | free
        return allowed


def mask_probability(i: int, blocks: int, done: float) -> float:
    """Return the probability that a query is masked in a block of the head.

    It decays from 1 to 0, one block after another, as in the authors' schedule.

    Args:
        i: Index of the block.
        blocks: Number of blocks in the head.
        done: Completed fraction of the training.
    """
    begin, end = ((3 * i + n) / (3 * blocks + 3) for n in (2, 4))
    return min(max((end - done) / (end - begin), 0), 1) ** DECAY


def progress() -> float:
    """Return the completed fraction of the current training, or 0 outside training."""
    hub = MessageHub.get_current_instance()
    max_iters = hub.get_info('max_iters')
    return hub.get_info('iter', 0) / max_iters if max_iters else 0.0


def _twice(in_channels: int, channels: int) -> nn.Sequential:
    """Return layers that double the height and width of maps."""
    return nn.Sequential(
        nn.ConvTranspose2d(in_channels, channels, 2, stride=2),
        nn.GELU(),
        nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False),
        MODELS.build(dict(type='MapLayerNorm', num_channels=channels)),
    )
