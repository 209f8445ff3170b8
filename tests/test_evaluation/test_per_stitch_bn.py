from copy import deepcopy

import pytest
import torch
from equality import assert_same
from mmengine.model import BaseDataPreprocessor, BaseModel
from mmengine.registry import MODEL_WRAPPERS
from staged_anchors import disturb, resnet
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.evaluation import per_stitch_bn
from snnet_mm.evaluation.per_stitch_bn import (
    PerStitchBN,
    attach_statistics,
    recalibrate_bn,
)
from snnet_mm.models import SandwichWrapper, SNNetv1, set_stitch
from snnet_mm.stitching import visiting_order

MEAN, VAR = 'head.bn.running_mean', 'head.bn.running_var'


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
    means = torch.stack([y.mean((0, 2, 3)) for y in x])
    variances = torch.stack([y.var((0, 2, 3)) for y in x])
    return {MEAN: means.mean(0), VAR: variances.mean(0)}


class Parallel(nn.Module):
    """As DDP, it holds a model as ``module``."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_statistics_are_those_of_each_stitch(model, batches, monkeypatch):
    set_stitch(model, 3)
    before = deepcopy(dict(model.state_dict()))
    statistics = recalibrate_bn(model, batches, (7, 0, 1))
    assert sorted(statistics) == [0, 1, 7]
    # Nothing else has changed.
    assert model.backbone.active_stitch.id == 3
    assert all(m.training for m in model.modules())
    assert model.head.bn.momentum == 0.1
    assert_same(dict(model.state_dict()), before)
    monkeypatch.setitem(MODEL_WRAPPERS.module_dict, 'Parallel', Parallel)
    assert_same(recalibrate_bn(Parallel(model), batches, (7, 0, 1)), statistics)
    for stitch_id, values in statistics.items():
        torch.testing.assert_close(values, by_hand(model, batches, stitch_id))
    means = [values[MEAN] for values in statistics.values()]
    assert not torch.allclose(means[0], means[1], rtol=0.1)


def test_a_switch_brings_the_statistics(model, batches, monkeypatch):
    monkeypatch.setitem(MODEL_WRAPPERS.module_dict, 'Parallel', Parallel)
    norm, mixed = model.eval().head.bn, model.head.bn.running_mean.clone()
    keys, statistics = list(model.state_dict()), recalibrate_bn(model, batches, (0, 7))
    for held in (model, Parallel(model)):
        bn = PerStitchBN(held, statistics).attach()
        assert list(model.state_dict()) == keys
        for stitch_id in (7, 0):
            set_stitch(held, stitch_id)
            assert torch.equal(norm.running_mean, statistics[stitch_id][MEAN])
        set_stitch(held, 3)
        assert torch.equal(norm.running_mean, mixed)
        set_stitch(held, 7)
        bn.detach()
        assert torch.equal(norm.running_mean, mixed)
        assert not hasattr(model, 'per_stitch_bn')


def test_statistics_of_a_checkpoint_fit_as_far_as_they_do(model, batches, monkeypatch):
    said = []
    monkeypatch.setattr(per_stitch_bn, 'print_log', lambda text, *_: said.append(text))
    own = recalibrate_bn(model, batches, (0, 7))
    extra = dict(own[0], **{'auxiliary_head.bn.running_mean': own[0][MEAN]})
    found = {0: extra, 7: own[7], 99: own[0]}  # 99 is of a larger space
    mixed = model.head.bn.running_mean.clone()
    wrapped = SandwichWrapper(model)
    norms = attach_statistics(wrapped, found)
    for stitch_id, wanted in ((7, own[7][MEAN]), (3, mixed), (0, own[0][MEAN])):
        set_stitch(wrapped, stitch_id)
        assert model.head.bn.running_mean.equal(wanted)
    norms.detach()
    assert attach_statistics(model, {}) is None
    model.neck = nn.BatchNorm2d(3)
    assert attach_statistics(model, found) is None
    assert 'keep mixed batch norm statistics' in said.pop()
    del model.neck
    model.auxiliary_head = nn.ModuleDict(
        dict(bn=nn.BatchNorm2d(3))
    )  # which prediction leaves out
    assert_same(recalibrate_bn(model, batches, (0, 7)), own)


class Classifier(BaseModel):
    """A head with an end per anchor, as StitchedClsHead has it."""

    def __init__(self, backbone, widths):
        super().__init__(BaseDataPreprocessor())
        self.backbone = backbone
        self.anchor_heads = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)

    def forward(self, inputs, mode='tensor'):
        end = self.anchor_heads[self.backbone.active_stitch.end_anchor]
        return end(self.backbone(inputs).tokens.mean(1))

    def idle_parameters(self, stitch):
        idle = [e for a, e in enumerate(self.anchor_heads) if a != stitch.end_anchor]
        return nn.ModuleList(idle).parameters()


@pytest.fixture
def classifier():
    pytest.importorskip('timm')
    pair = [resnet(), resnet('resnet50')]
    backbone = disturb(SNNetv1(pair, stages=(1,), out='end'))
    return Classifier(backbone, (20, 80)).eval()


@torch.no_grad()
def test_anchors_with_batch_norms(classifier, batches):
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
        wanted = {f'{n}.running_mean': m.running_mean for n, m in run.items()}
        wanted |= {f'{n}.running_var': m.running_var for n, m in run.items()}
        assert len(run) < len(norms)
        torch.testing.assert_close(statistics[stitch_id], wanted)
    # Where only some have their own, stitches that begin alike differ all the same.
    PerStitchBN(classifier, {i: statistics[i] for i in (0, 3)}).attach()
    images, alone = batches[0]['inputs'], {}
    for i in backbone.space.ids:
        set_stitch(classifier, i)
        alone[i] = classifier(images)
    with backbone.sharing_prefixes():
        for stitch in visiting_order(backbone.space):
            set_stitch(classifier, stitch.id)
            assert classifier(images).equal(alone[stitch.id])
    classifier.per_stitch_bn.detach()
    assert backbone.shares_prefixes
    with pytest.raises(ValueError, match='anchor_heads.0.bias.*; allowed: all'):
        PerStitchBN(classifier, {0: {'anchor_heads.0.bias': images}})
    older = {k.replace('anchor_heads', 'ends'): v for k, v in statistics[0].items()}
    with pytest.raises(ValueError, match=r'ends\.0.* --recalibrate-bn writes'):
        PerStitchBN(classifier, {0: older})


def test_frozen_norms_keep_what_they_came_with(classifier, batches):
    """As those of mmdet's ResNets, which are in eval mode in training."""

    def train(mode=True):
        nn.Module.train(classifier.backbone, mode)
        classifier.backbone.anchors[1].eval()
        return classifier.backbone

    classifier.backbone.train = train
    classifier.train()
    modes = {module: module.training for module in classifier.modules()}
    statistics = recalibrate_bn(classifier, batches, (1, 2))
    assert {module: module.training for module in classifier.modules()} == modes
    trained = {k.rpartition('.')[0] for values in statistics.values() for k in values}
    assert trained
    assert not [name for name in trained if 'anchors.1.' in name]
    frozen = deepcopy(classifier.backbone.anchors[1].state_dict())
    # A file that has them, as older ones do, changes nothing.
    older = {f'backbone.anchors.1.{k}': v + 1 for k, v in frozen.items()}
    attach_statistics(classifier, {i: statistics[i] | older for i in statistics})
    set_stitch(classifier, 1)
    assert_same(dict(classifier.backbone.anchors[1].state_dict()), dict(frozen))
