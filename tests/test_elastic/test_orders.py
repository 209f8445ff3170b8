"""Orders of hidden units, against least squares of the units that are left."""

from copy import deepcopy

import pytest
import torch
from families import of_every_kind
from staged_anchors import disturb

from snnet_mm.elastic.orders import RIDGE, channels_of, rank_units
from snnet_mm.models import ElasticBackbone, LeastSquares

pytest.importorskip('mmpretrain.models')


def activations(units, group, tokens=400):
    """Random hidden channels and outputs; half of the units matter little."""
    torch.manual_seed(0)
    h = torch.randn(tokens, units * group, dtype=torch.float64) + 1
    weight = torch.randn(units * group, 5, dtype=torch.float64)
    weight.view(units, group, 5)[::2] *= 0.01
    return h, h @ weight + 0.1 * torch.randn(tokens, 5, dtype=torch.float64) + 3


def ranked(h, y, group):
    fit = LeastSquares(h.shape[1], y.shape[1])
    fit.update(h, y)
    return rank_units(fit.sums, group)


def error_by_lstsq(h, y, kept):
    """Squared error per token, and that of the ridge, of the best map of channels."""
    h, y = h - h.mean(0), y - y.mean(0)
    guards = RIDGE * h[:, kept].square().sum(0)
    x = torch.cat([h[:, kept], guards.sqrt().diag()])
    y = torch.cat([y, y.new_zeros(len(kept), y.shape[1])])
    left = y - x @ torch.linalg.lstsq(x, y).solution
    return left.square().sum().item() / len(h)


@pytest.mark.parametrize('units, group', [(20, 1), (6, 4)])
def test_rank_units_errors_equal_lstsq_of_prefixes(units, group):
    h, y = activations(units, group)
    order, errors = ranked(h, y, group)
    assert sorted(order) == [*range(units)]
    assert {1, units} <= errors.keys()
    for number, error in errors.items():
        kept = [unit * group + i for unit in order[:number] for i in range(group)]
        assert error == pytest.approx(error_by_lstsq(h, y, kept), rel=1e-6)
    assert {*order[: units // 2]} == {*range(1, units, 2)}


def test_rank_units_drops_a_copy_first():
    """Each of two equal units is the largest alone, but one of them is enough."""
    h, y = activations(6, 1)
    h, y = torch.cat([h, h[:, 1:2]], 1), y + 10 * h[:, 1:2]
    order, _ = ranked(h, y, 1)
    assert len({*order[:3]} & {1, 6}) == 1
    assert {*order[:3]} | {1, 6} == {1, 3, 5, 6}


@pytest.mark.parametrize('group', [1, 4])
def test_rank_units_does_not_depend_on_scales_of_channels(group):
    """An outlier channel, as DINOv3 has, drowns no other in order or errors."""
    h, y = activations(24 // group, group)
    order, errors = ranked(h, y, group)
    scale = torch.ones(24, dtype=torch.float64)
    scale[3], scale[7] = 1000, 1e-3
    scaled = ranked(h * scale, y, group)
    assert scaled.order == order
    assert scaled.errors == pytest.approx(errors, rel=1e-6)


@torch.no_grad()
@pytest.mark.parametrize('config', of_every_kind())
def test_outlier_channel_drowns_no_other_in_order_or_fit(config):
    """Of the hidden activations of every branch, summed in single precision."""
    torch.manual_seed(0)
    net = disturb(ElasticBackbone([deepcopy(config)], [])).eval()
    state = net.view.embed(torch.randn(2, 3, 64, 64))
    for i in range(net.view.depth):
        branch, after = net.view[i], net.view.run_block(state, i)
        if branch is not None:
            number = 800 // state.tokens.shape[1] + 1
            x = torch.randn(number, *state.tokens.shape[1:])
            whole = torch.arange(branch.units)
            h = branch.hidden(x, state.grid, whole, branch.units).flatten(0, 1)
            y = (branch.run(x, state.grid) - x).flatten(0, 1)
            assert_same_with_outlier(h, y, branch.group)
        state = after


def assert_same_with_outlier(h, y, group):
    found, units = [], h.shape[1] // group
    for factor in (1, 1000):
        outlier = torch.ones(h.shape[1])
        outlier[group + 1] = factor
        fit = LeastSquares(h.shape[1], y.shape[1], ridge=RIDGE, exact=False)
        fit.update(h * outlier, y)
        order, _ = rank_units(fit.sums, group)
        kept = channels_of(torch.tensor(order[: units // 2]), group)
        weight, bias = fit.x_to_y(kept)
        found.append((order, (h * outlier)[:, kept] @ weight.T.float() + bias.float()))
    (order, mapped), (of_outlier, same) = found
    assert of_outlier == order
    torch.testing.assert_close(same, mapped, rtol=1e-3, atol=1e-3)
    assert (mapped - y).square().mean() < 0.9 * (y - y.mean(0)).square().mean()


def test_rank_units_singular_sums_give_whole_order():
    h = torch.randn(6, 12, dtype=torch.float64)  # fewer tokens than units
    h[:, 3:] += 1e4  # rounding of single precision, far above the variance
    ones = torch.ones(6, 1, dtype=torch.float64)
    x, y = torch.cat([h, ones], 1).float(), torch.cat([h[:, :2], ones], 1).float()
    sums = (x.T @ x).double(), (x.T @ y[:, :2]).double(), (y.T @ y).double()
    assert sorted(rank_units(sums).order) == [*range(12)]
