"""Batch norm statistics of each stitch, computed by hand."""

from copy import deepcopy

import pytest
import torch
from equality import assert_same
from mmengine.model import BaseDataPreprocessor, BaseModel
from staged_anchors import disturb, resnet
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.evaluation.per_stitch_bn import recalibrate_bn
from snnet_mm.models import SNNetv1, set_statistics, set_stitch
from snnet_mm.stitching import visiting_order

NORM = 'head.bn'


class Model(BaseModel):
    def __init__(self, backbone):
        super().__init__(BaseDataPreprocessor())
        parts = dict(conv=nn.Conv2d(12, 5, 1), drop=nn.Dropout(0.5))
        parts['bn'] = nn.BatchNorm2d(5)
        self.backbone, self.head = backbone, nn.ModuleDict(parts)

    def forward(self, inputs, mode='tensor'):
        x = self.head.conv(self.backbone(inputs)[0])
        return self.head.bn(self.head.drop(x))


@pytest.fixture
def model(build_snnet):
    return Model(build_snnet(anchor=dict(drop_path_rate=0.5))).train()


@pytest.fixture
def batches():
    return [dict(inputs=torch.randn(4, 3, 32, 32)) for _ in range(3)]


@torch.no_grad()
def by_hand(model, batches, stitch_id):
    """Mean and variance of what the stitch sends into the batch norm."""
    set_stitch(model.eval(), stitch_id)
    x = [model.head.conv(model.backbone(b['inputs'])[0]) for b in batches]
    moments = [torch.stack([y.mean((0, 2, 3)), y.var((0, 2, 3))]) for y in x]
    return {NORM: sum(moments) / len(moments)}


def test_recalibrate_bn_statistics_of_each_stitch(model, batches):
    set_stitch(model, 3)
    before = deepcopy(dict(model.state_dict()))
    statistics = recalibrate_bn(model, batches, (7, 0, 1))
    assert sorted(statistics) == [0, 1, 7]
    # Nothing else has changed.
    assert model.backbone.active_stitch.id == 3
    assert all(m.training for m in model.modules())
    assert model.head.bn.momentum == 0.1
    assert_same(dict(model.state_dict()), before)
    for stitch_id, values in statistics.items():
        torch.testing.assert_close(values, by_hand(model, batches, stitch_id))
    means = [values[NORM][0] for values in statistics.values()]
    assert not torch.allclose(means[0], means[1], rtol=0.1)
    model.auxiliary_head = nn.ModuleDict(dict(bn=nn.BatchNorm2d(3)))
    assert_same(recalibrate_bn(model, batches, (7, 0, 1)), statistics)


class Classifier(BaseModel):
    """A head with an end per anchor, as StitchedClsHead has it."""

    def __init__(self, backbone, widths):
        super().__init__(BaseDataPreprocessor())
        self.backbone = backbone
        self.anchor_heads = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)

    def forward(self, inputs, mode='tensor'):
        end = self.anchor_heads[self.backbone.active_stitch.end_anchor]
        return end(self.backbone(inputs).tokens.mean(1))


@pytest.fixture
def classifier():
    pytest.importorskip('timm')
    pair = [resnet(), resnet('resnet50')]
    backbone = disturb(SNNetv1(pair, stages=(1,), out='end'))
    return Classifier(backbone, (20, 80)).eval()


@torch.no_grad()
def test_recalibrate_bn_of_anchors_with_batch_norms(classifier, batches):
    backbone = classifier.backbone
    statistics = recalibrate_bn(classifier, batches, backbone.space.ids)
    for stitch_id in (1, 2, 4):
        alone = deepcopy(classifier)
        set_stitch(alone, stitch_id)
        norms = {n: m for n, m in alone.named_modules() if isinstance(m, _BatchNorm)}
        for norm in norms.values():
            norm.momentum = None
            norm.train().reset_running_stats()
        for batch in batches:
            alone(batch['inputs'])
        run = {n: m for n, m in norms.items() if m.num_batches_tracked}
        wanted = {
            name: torch.stack([norm.running_mean, norm.running_var])
            for name, norm in run.items()
        }
        assert len(run) < len(norms)
        torch.testing.assert_close(statistics[stitch_id], wanted)
    # Where only some have their own, stitches that begin alike differ all the same.
    set_statistics(classifier, {i: statistics[i] for i in (0, 3)})
    images, alone = batches[0]['inputs'], {}
    for i in backbone.space.ids:
        set_stitch(classifier, i)
        alone[i] = classifier(images)
    with backbone.sharing_prefixes():
        for stitch in visiting_order(backbone.space):
            set_stitch(classifier, stitch.id)
            assert classifier(images).equal(alone[stitch.id])


def test_recalibrate_bn_leaves_frozen_norms_alone(classifier, batches):
    """As those of mmdet's ResNets, which are in eval mode in training."""

    def train(mode=True):
        nn.Module.train(classifier.backbone, mode)
        classifier.backbone.anchors[1].eval()
        return classifier.backbone

    classifier.backbone.train = train
    statistics = recalibrate_bn(classifier.train(), batches, (1, 2))
    names = {name for values in statistics.values() for name in values}
    assert names
    assert not [name for name in names if 'anchors.1.' in name]
