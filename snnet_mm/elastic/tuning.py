"""Tuning of the chains of an elastic model, with its network as the teacher."""

from collections.abc import Sequence
from copy import deepcopy
from math import ceil

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.models import (
    ElasticBackbone,
    ModelWrapper,
    PartPerChain,
    find_stitched_backbone,
    set_stitch,
)
from snnet_mm.models.wrappers.distillation import weighted
from snnet_mm.utils import check, register

from .divergence import Predictions, alignment_loss, recorded_output

HEADS_RATE = 10  # learning rate of the chains' own heads, relative to the maps'


@register(MODELS)
class ElasticTuningWrapper(ModelWrapper):
    """A model whose chains learn the predictions of the whole network.

    The network and its heads are frozen and in eval mode. Stitching layers, and the
    chains' own heads, are trained. The chains' own heads are in training mode, except
    for batch norms, which keep the network's statistics.

    The active chain has two losses: the divergence of its :class:`Predictions`, and 1
    minus the cosine of the backbone's outputs. If ``labels`` is positive, the weighted
    label losses are added.

    Args:
        model, data_preprocessor: See :class:`ModelWrapper`.
        labels: Weight of the label losses. If 0, labels are not read.
    """

    def __init__(
        self,
        model: dict | BaseModel,
        labels: float = 0,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(model, data_preprocessor)
        backbone = find_stitched_backbone(self)
        wanted = 'an ElasticBackbone'
        fits = isinstance(backbone, ElasticBackbone)
        check(fits, 'model.model.backbone', type(backbone).__name__, wanted)
        self.labels = labels
        parts = [m for m in self.modules() if isinstance(m, PartPerChain)]
        self._heads = [part for m in parts for part in m.parts[1:]]
        heads = [p for h in self._heads for p in h.parameters() if p.requires_grad]
        self.requires_grad_(False)
        backbone.stitching_layers.requires_grad_(True)
        for trained in heads:
            trained.requires_grad_(True)
        self._predictions: Predictions | None = None

    def train(self, mode: bool = True) -> 'ElasticTuningWrapper':
        super().train(mode)
        self.wrapped.eval()
        for module in (m for h in self._heads if mode for m in h.modules()):
            module.training = not isinstance(module, _BatchNorm)
        return self

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of the active stitch for preprocessed images."""
        backbone = find_stitched_backbone(self)
        if self._predictions is None:
            self._predictions = Predictions(self.wrapped, inputs.shape[-2:])
        predictions, active = self._predictions, backbone.active_stitch
        with torch.no_grad():
            set_stitch(self, 0)
            whole = backbone(inputs)
            target = predictions.read(inputs, whole)
        set_stitch(self, active.id)
        losses = {}
        if self.labels:
            with recorded_output(backbone) as output:
                losses = super().loss(inputs, data_samples)
            found = output()
            losses = weighted(losses, self.labels)
        else:
            found = backbone(inputs)
        read = predictions.read(inputs, found)
        losses['loss_divergence'] = predictions.distance(read, target)
        losses['loss_alignment'] = alignment_loss(found, whole)
        return losses


def tuning_config(
    cfg: Config,
    checkpoint: str,
    ids: Sequence[int],
    iters: int,
    labels: float = 0,
    lr: float = 1e-4,
    unlabelled: dict | None = None,
) -> Config:
    """Return the config that tunes chains of an elastic model.

    Args:
        cfg: Config of the elastic model.
        checkpoint: Its weights.
        ids: Stitches to train.
        iters: Number of iterations; each trains one chain.
        labels: See :class:`ElasticTuningWrapper`.
        lr: Peak learning rate.
        unlabelled: Config of a data set that replaces the training set.
    """
    cfg = Config(deepcopy(cfg.to_dict()))
    cfg.model = dict(type='ElasticTuningWrapper', model=cfg.model, labels=labels)
    if unlabelled is not None:
        loader = cfg.pop('train_dataloader', None) or {}
        kept = ('batch_size', 'num_workers', 'persistent_workers')
        cfg.train_dataloader = dict(
            dict(batch_size=8, num_workers=0),
            dataset=unlabelled,
            sampler=dict(type='InfiniteSampler'),
        ) | {k: loader[k] for k in kept if k in loader}
    # '.parts.' also matches the network's own heads, which are frozen.
    rates = {'.parts.': dict(lr_mult=HEADS_RATE)}
    cfg.optim_wrapper = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=lr, weight_decay=0.0),
        paramwise_cfg=dict(custom_keys=rates, bypass_duplicate=True),
        clip_grad=dict(max_norm=1.0) if labels else None,
    )
    falling = dict(type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=False)
    warm = min(25, iters // 10) if labels else 0
    falling |= dict(begin=warm, end=iters, T_max=iters - warm)
    rising = dict(type='LinearLR', start_factor=1e-3, end=warm, by_epoch=False)
    cfg.param_scheduler = [rising, falling] if warm else [falling]
    loop = dict(type='IterBasedTrainLoop', max_iters=iters, val_interval=iters + 1)
    cfg.train_cfg = loop
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    checkpoints = dict(type='StitchCheckpointHook', by_epoch=False, max_keep_ckpts=1)
    sampler = dict(type='UniformSampler', ids=list(ids))
    hooks = {k: v for k, v in cfg.default_hooks.items() if k != 'stitch_statistics'}
    cfg.default_hooks = dict(
        hooks,
        checkpoint=dict(checkpoints, interval=ceil(iters / 10)),
        stitch_sampling=dict(type='StitchSamplingHook', sampler=sampler),
    )
    cfg.custom_hooks = []  # of the network's training; an EMA would undo this one
    cfg.load_from, cfg.resume = checkpoint, False
    return cfg
