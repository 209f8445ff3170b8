"""Batch norms with statistics of each stitch: outputs, state dicts, replacement."""

from copy import deepcopy

import pytest
import torch
from equality import assert_same
from torch import nn

from snnet_mm.models import (
    StitchBatchNorm,
    convert_batch_norms,
    known_stitches,
    set_statistics,
    set_stitch,
)
from snnet_mm.models.layers.stitch_batch_norm import ROWS, StitchSyncBatchNorm
from snnet_mm.utils.checkpoints import check_weights_fit

NORM = 'head.bn'


@pytest.fixture
def model(build_snnet):
    """A backbone of 9 stitches, ids 0 to 8 without 4, and a head with a norm."""
    norm = nn.BatchNorm2d(5)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    head = nn.ModuleDict(dict(bn=norm))
    return nn.ModuleDict(dict(backbone=build_snnet(), head=head)).eval()


def statistics_of(*ids):
    """Statistics of some stitches, by stitch id and name of the norm."""
    random = torch.Generator().manual_seed(0)
    return {i: {NORM: torch.rand(2, 5, generator=random) + 0.5} for i in ids}


def outputs(model, ids, x):
    """What the norm makes of a map, by stitch id."""
    found = {}
    for i in ids:
        set_stitch(model, i)
        found[i] = model.head.bn(x)
    return found


def with_moments(norm, moments):
    norm = deepcopy(norm)
    norm.running_mean, norm.running_var = moments
    return norm


def test_stitch_batch_norm_follows_stitch_in_eval(model):
    plain, own = deepcopy(model.head.bn), statistics_of(0, 7)
    x = torch.randn(2, 5, 3, 3)
    set_statistics(model, own)
    keys, norm = list(model.state_dict()), model.head.bn
    wanted = {i: with_moments(plain, own[i][NORM])(x) for i in own} | {3: plain(x)}
    assert known_stitches(model) == {0, 7}
    assert [tuple(getattr(norm, name).shape) for name in ROWS] == [(9, 5), (9, 5), (9,)]
    assert_same(outputs(model, wanted, x), wanted)
    for stitch_id in (7, 0):  # neither what trains nor what it updates is of a stitch
        set_stitch(model, stitch_id)
        assert norm.train()(x).equal(plain.train()(x))
        assert norm.eval().running_mean.equal(plain.eval().running_mean)
    set_statistics(model, {})
    assert list(model.state_dict()) == keys
    assert known_stitches(model) == set()
    assert outputs(model, [7], x)[7].equal(plain(x))


def act(channels):
    return pytest.importorskip('timm.layers').BatchNormAct2d(channels)


@pytest.mark.parametrize(
    ('build', 'rank', 'kind'),
    [
        (nn.BatchNorm1d, 0, StitchBatchNorm),
        (nn.BatchNorm1d, 1, StitchBatchNorm),
        (nn.BatchNorm2d, 2, StitchBatchNorm),
        (nn.BatchNorm3d, 3, StitchBatchNorm),
        (act, 2, StitchBatchNorm),
        (nn.SyncBatchNorm, 2, StitchSyncBatchNorm),
    ],
)
def test_convert_batch_norms_replaces_norms_of_all_kinds(build, rank, kind, model):
    """Outputs in training and evaluation stay the same; so do the parameters."""
    plain, own = build(5), statistics_of(7)
    plain.weight.data.normal_()
    model.head = nn.ModuleDict(dict(bn=plain, again=plain))  # shared
    alone, parameters = deepcopy(plain), dict(model.named_parameters())
    (norm,) = convert_batch_norms(model).values()
    assert type(norm) is kind
    assert norm is model.head.bn is model.head.again
    assert convert_batch_norms(model) == {NORM: norm}
    found = dict(model.named_parameters())
    assert all(found[name] is parameter for name, parameter in parameters.items())
    x = torch.randn(4, 5, *[3] * rank)
    assert norm.train()(x).equal(alone.train()(x))
    assert norm.running_var.equal(alone.running_var)
    assert norm.eval()(x).equal(alone.eval()(x))
    set_statistics(model, own)
    wanted = with_moments(alone, own[7][NORM])(x)
    assert outputs(model, [7], x)[7].equal(wanted)
    assert (wanted.min() >= 0) == (build is act)


class Squared(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x) ** 2


def test_convert_batch_norms_leaves_norms_that_compute_more(model):
    model.head.bn = Squared(5)
    assert convert_batch_norms(model) == {}
    assert type(model.head.bn) is Squared


def test_stitch_batch_norm_state_dict_round_trip(model):
    own = statistics_of(7, 0)
    set_statistics(model, own)
    state = deepcopy(model.state_dict())
    assert state['head.bn.known'].nonzero().flatten().tolist() == [0, 7]
    assert state['head.bn.stitch_mean'][7].equal(own[7][NORM][0])
    set_statistics(model, {})
    model.load_state_dict(state)
    set_stitch(model.double(), 7)
    for each in (model, deepcopy(model)):
        assert torch.stack(each.head.bn.moments()).equal(own[7][NORM].double())
    # A state dict without statistics is one of other weights.
    model.load_state_dict({k: v for k, v in state.items() if not k.endswith(ROWS)})
    assert known_stitches(model) == set()
    assert not model.head.bn.stitch_var.any()


def older(state, ids):
    """The layout of checkpoints before statistics were buffers."""
    kept = {k: v for k, v in state.items() if not k.endswith(ROWS)}
    moments = {f'{NORM}.{name}': state[f'{NORM}.{name}'][ids] for name in ROWS[:2]}
    return kept | moments | {f'{NORM}.stitch_ids': torch.tensor(ids)}


def wider(state, ids):
    """Of a space with more stitches."""
    rows = {f'{NORM}.{name}' for name in ROWS}
    more = {k: torch.cat([state[k], state[k][:2]]) for k in rows}
    return {k: more.get(k, v) for k, v in state.items()}


def narrower(state, ids):
    """Of a space with the first stitches alone."""
    rows = {f'{NORM}.{name}' for name in ROWS}
    return {k: v[:8] if k in rows else v for k, v in state.items()}


@pytest.mark.parametrize('layout', [older, wider, narrower])
def test_stitch_batch_norm_loads_other_layouts(layout, model):
    set_statistics(model, statistics_of(0, 3, 7))
    wanted = deepcopy(model.state_dict())
    state = layout(wanted, [0, 3, 7])
    set_statistics(model, statistics_of(1, 2))
    check_weights_fit(model, state, 'a file', strict=True)
    model.load_state_dict(state)
    assert_same(dict(model.state_dict()), dict(wanted))


def test_stitch_batch_norm_leaves_those_of_other_widths(model):
    set_statistics(model, statistics_of(0, 3))
    state = model.state_dict()
    model.head = nn.ModuleDict(dict(bn=nn.BatchNorm2d(6)))
    convert_batch_norms(model)
    with pytest.raises(RuntimeError, match='copying a param with shape .*5'):
        model.load_state_dict(state)
    assert known_stitches(model) == set()
