"""Tuning of the chains of an elastic model, with its network as the teacher."""

from copy import deepcopy
from math import ceil

import torch
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.costs import cost_table
from snnet_mm.models import (
    ElasticBackbone,
    ModelWrapper,
    find_stitched_backbone,
    set_stitch,
)
from snnet_mm.utils import check

from .divergence import PredictionDistance, alignment_loss


@MODELS.register_module()
class ElasticTuningWrapper(ModelWrapper):
    """A model whose chains learn the predictions of the whole network.

    The network and its heads are frozen and in eval mode; only stitching layers are
    trained. The active chain has two losses: the divergence of its
    :class:`PredictionDistance`, and 1 minus the cosine of the backbone's outputs.
    Labels are not read.

    Args:
        model, data_preprocessor: See :class:`ModelWrapper`.
    """

    def __init__(
        self, model: dict | BaseModel, data_preprocessor: dict | None = None
    ) -> None:
        super().__init__(model, data_preprocessor)
        backbone = find_stitched_backbone(self)
        wanted = 'an ElasticBackbone'
        fits = isinstance(backbone, ElasticBackbone)
        check(fits, 'model.model.backbone', type(backbone).__name__, wanted)
        self.requires_grad_(False)
        backbone.stitching_layers.requires_grad_(True)
        self._predictions: PredictionDistance | None = None

    def train(self, mode: bool = True) -> 'ElasticTuningWrapper':
        super().train(mode)
        self.wrapped.eval()
        return self

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of the active stitch for preprocessed images."""
        backbone = find_stitched_backbone(self)
        if self._predictions is None:
            scope = cost_table(self.wrapped, tuple(inputs.shape[-2:])).scope
            self._predictions = PredictionDistance(self.wrapped, scope)
        predictions, active = self._predictions, backbone.active_stitch
        with torch.no_grad():
            set_stitch(self, 0)
            whole = backbone(inputs)
            target = predictions.read(inputs, whole)
        set_stitch(self, active.id)
        found = backbone(inputs)
        read = predictions.read(inputs, found)
        return dict(
            loss_divergence=predictions.distance(read, target),
            loss_alignment=alignment_loss(found, whole),
        )


def tuning_config(
    cfg: Config,
    checkpoint: str,
    iters: int,
    lr: float = 1e-5,
    unlabelled: dict | None = None,
) -> Config:
    """Return the config that tunes chains of an elastic model.

    Args:
        cfg: Config of the elastic model.
        checkpoint: Its weights.
        iters: Number of iterations; each trains one chain.
        lr: Peak learning rate.
        unlabelled: Config of a data set that replaces the training set.
    """
    cfg = Config(deepcopy(cfg.to_dict()))
    cfg.model = dict(type='ElasticTuningWrapper', model=cfg.model)
    if unlabelled is not None:
        loader = cfg.pop('train_dataloader', None) or {}
        kept = ('batch_size', 'num_workers', 'persistent_workers')
        cfg.train_dataloader = dict(
            dict(batch_size=8, num_workers=0),
            dataset=unlabelled,
            sampler=dict(type='InfiniteSampler'),
        ) | {k: loader[k] for k in kept if k in loader}
    cfg.optim_wrapper = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=lr, weight_decay=0.0),
    )
    falling = dict(type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=False)
    cfg.param_scheduler = [dict(falling, end=iters, T_max=iters)]
    loop = dict(type='IterBasedTrainLoop', max_iters=iters, val_interval=iters + 1)
    cfg.train_cfg = loop
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    checkpoints = dict(type='StitchCheckpointHook', by_epoch=False, max_keep_ckpts=1)
    ids = [*range(1, 1 + len(cfg.model.model.backbone.chains))]
    sampler = dict(type='UniformSampler', ids=ids)
    cfg.default_hooks = dict(
        cfg.get('default_hooks') or {},
        checkpoint=dict(checkpoints, interval=ceil(iters / 10)),
        stitch_sampling=dict(type='StitchSamplingHook', sampler=sampler),
    )
    cfg.custom_hooks = []  # of the network's training; an EMA would undo this one
    cfg.load_from, cfg.resume = checkpoint, False
    return cfg
