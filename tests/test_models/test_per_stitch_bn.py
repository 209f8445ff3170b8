import pytest
import torch
from mmengine.model import BaseDataPreprocessor, BaseModel
from torch import nn

from snnet_mm.models import PerStitchBN, recalibrate_bn, set_stitch


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


def test_wrong_statistics_and_models_are_refused(model, batches):
    with pytest.raises(ValueError, match=r"stitch 0 are \['neck"):
        PerStitchBN(model, {0: {'neck.bn.running_mean': torch.zeros(5)}})
    with pytest.raises(ValueError, match='stitch id 99 is not in'):
        PerStitchBN(model, {99: {}})
    with pytest.raises(ValueError, match='no images to recalibrate'):
        recalibrate_bn(model, [], (0,))
    model.head.bn = nn.Identity()
    with pytest.raises(ValueError, match='Model has no batch norm'):
        recalibrate_bn(model, batches, (0,))
