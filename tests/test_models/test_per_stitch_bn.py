from copy import deepcopy

import pytest
import torch
from mmengine.model import BaseDataPreprocessor, BaseModel
from mmengine.registry import MODEL_WRAPPERS
from staged_anchors import disturb, resnet
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.models import PerStitchBN, SNNetv1, recalibrate_bn, set_stitch
from snnet_mm.stitching import visiting_order


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(12, 5, 1)
        self.bn = nn.BatchNorm2d(5)
        self.dropout = nn.Dropout(0.5)

    def forward(self, maps):
        return self.bn(self.dropout(self.conv(maps[0])))


class Model(BaseModel):
    def __init__(self, backbone):
        super().__init__(BaseDataPreprocessor())
        self.backbone, self.head = backbone, Head()

    def forward(self, inputs, mode='tensor'):
        return self.head(self.backbone(inputs))


@pytest.fixture
def model(build_snnet):
    return Model(build_snnet(anchor=dict(drop_path_rate=0.5))).train()


@pytest.fixture
def batches():
    return [dict(inputs=torch.randn(4, 3, 32, 32)) for _ in range(3)]


def by_hand(model, batches, stitch_id):
    """Mean and variance of what the stitch sends into the batch norm."""
    model.eval()
    set_stitch(model, stitch_id)
    with torch.no_grad():
        x = [model.head.conv(model.backbone(b['inputs'])[0]) for b in batches]
    means = torch.stack([y.mean((0, 2, 3)) for y in x])
    variances = torch.stack([y.var((0, 2, 3)) for y in x])
    return means.mean(0), variances.mean(0)


def test_statistics_are_those_of_each_stitch(model, batches):
    set_stitch(model, 3)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    statistics = recalibrate_bn(model, batches, (7, 0, 1))
    assert sorted(statistics) == [0, 1, 7]
    # Nothing else has changed.
    assert model.backbone.active_stitch.id == 3
    assert model.training
    assert model.head.bn.training
    assert model.head.bn.momentum == 0.1
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    for stitch_id, values in statistics.items():
        mean, var = by_hand(model, batches, stitch_id)
        torch.testing.assert_close(values['head.bn.running_mean'], mean)
        torch.testing.assert_close(values['head.bn.running_var'], var)
    means = [values['head.bn.running_mean'] for values in statistics.values()]
    assert not torch.allclose(means[0], means[1], rtol=0.1)


def test_a_switch_brings_the_statistics(model, batches):
    model.eval()
    mixed = model.head.bn.running_mean.clone()
    keys = list(model.state_dict())
    statistics = recalibrate_bn(model, batches, (0, 7))
    bn = PerStitchBN(model, statistics).attach()
    assert list(model.state_dict()) == keys
    for stitch_id in (7, 0):
        set_stitch(model, stitch_id)
        expected = statistics[stitch_id]['head.bn.running_mean']
        assert torch.equal(model.head.bn.running_mean, expected)
    set_stitch(model, 3)
    assert torch.equal(model.head.bn.running_mean, mixed)
    set_stitch(model, 7)
    bn.detach()
    assert torch.equal(model.head.bn.running_mean, mixed)
    assert not hasattr(model, 'per_stitch_bn')


class Parallel(nn.Module):
    """As DDP, it holds a model as ``module``."""

    def __init__(self, module):
        super().__init__()
        self.module = module


def test_a_model_in_a_wrapper_has_the_same_statistics(model, batches, monkeypatch):
    monkeypatch.setitem(MODEL_WRAPPERS.module_dict, 'Parallel', Parallel)
    alone = recalibrate_bn(model, batches, (0, 7))
    held = Parallel(model.eval())
    statistics = recalibrate_bn(held, batches, (0, 7))
    for stitch_id, values in alone.items():
        assert values.keys() == statistics[stitch_id].keys()
        assert all(v.equal(statistics[stitch_id][k]) for k, v in values.items())
    bn = PerStitchBN(held, statistics).attach()
    set_stitch(held, 7)
    assert model.head.bn.running_mean.equal(statistics[7]['head.bn.running_mean'])
    bn.detach()


def test_wrong_statistics_and_models_are_refused(model, batches):
    with pytest.raises(ValueError, match='neck.*; allowed: all 1 .*for stitch 0'):
        PerStitchBN(model, {0: {'neck.bn.running_mean': torch.zeros(5)}})
    with pytest.raises(ValueError, match='stitch id 99 is not in'):
        PerStitchBN(model, {99: {}})
    with pytest.raises(ValueError, match='images to recalibrate'):
        recalibrate_bn(model, [], (0,))
    model.head.bn = nn.Identity()
    with pytest.raises(ValueError, match='Model.*; allowed: a model with batch norms'):
        recalibrate_bn(model, batches, (0,))


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
        return [
            p
            for a, end in enumerate(self.anchor_heads)
            if a != stitch.end_anchor
            for p in end.parameters()
        ]


def test_anchors_with_batch_norms(batches):
    pytest.importorskip('timm')
    pair = [resnet(), resnet('resnet50')]
    backbone = disturb(SNNetv1(pair, stages=(1,), out='end'))
    model = Classifier(backbone, (20, 80)).eval()
    ids = backbone.space.ids
    statistics = recalibrate_bn(model, batches, ids)
    for stitch_id in (1, 2, 4):
        alone = deepcopy(model)
        set_stitch(alone, stitch_id)
        norms = {n: m for n, m in alone.named_modules() if isinstance(m, _BatchNorm)}
        for norm in norms.values():
            norm.momentum = None
            norm.reset_running_stats()
            norm.train()
        with torch.no_grad():
            for batch in batches:
                alone(batch['inputs'])
        run = {n: m for n, m in norms.items() if m.num_batches_tracked}
        assert set(statistics[stitch_id]) == {
            f'{n}.{k}' for n in run for k in ('running_mean', 'running_var')
        }
        assert len(run) < len(norms)
        for name, norm in run.items():
            mean = statistics[stitch_id][f'{name}.running_mean']
            torch.testing.assert_close(mean, norm.running_mean)
    # Where only some have their own, stitches that begin alike differ all the same.
    PerStitchBN(model, {i: statistics[i] for i in (0, 3)}).attach()
    images, alone = batches[0]['inputs'], {}
    with torch.no_grad():
        for i in ids:
            set_stitch(model, i)
            alone[i] = model(images)
        with backbone.sharing_prefixes():
            for stitch in visiting_order(backbone.space):
                set_stitch(model, stitch.id)
                assert model(images).equal(alone[stitch.id])
    model.per_stitch_bn.detach()
    assert backbone.shares_prefixes
    name = 'backbone.anchors.0.stem.bn1.running_mean'
    with pytest.raises(ValueError, match='anchor_heads.0.bias.*; allowed: all'):
        PerStitchBN(model, {0: {'anchor_heads.0.bias': statistics[0][name]}})
    older = {k.replace('anchor_heads', 'ends'): v for k, v in statistics[0].items()}
    with pytest.raises(ValueError, match=r'ends\.0.* anew by tools/test.py --recalib'):
        PerStitchBN(model, {0: older})
