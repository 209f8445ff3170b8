import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import disturb, resnet, swin
from states import states_of

from snnet_mm.anchors import TokenState
from snnet_mm.models import (
    ElasticBackbone,
    LeastSquares,
    PrefixStitchingLayer,
    SNNetv1,
    fit_in_turn,
    fit_stitching_layers,
)
from snnet_mm.models.layers.least_squares import ROWS, LayerFit


def assert_close(found, wanted, tolerance=1e-6):
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def paired_activations(n=200, x_dim=5, y_dim=7):
    """Random activations that are partly an affine map of each other."""
    x = torch.randn(n, x_dim, dtype=torch.float64) + 1
    y = x @ torch.randn(x_dim, y_dim, dtype=torch.float64)
    return x, y + 2 + torch.randn_like(y)


def fitted(x, y, **kwargs):
    fit = LeastSquares(x.shape[-1], y.shape[-1], **kwargs)
    fit.update(x, y)
    return fit


def solved_by_torch(x, y):
    x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
    solution = torch.linalg.lstsq(x, y, driver='gelsd').solution
    return solution[:-1].T, solution[-1]


@pytest.mark.parametrize(
    ('widths', 'ridge', 'spread', 'tolerance'),
    [((5, 7), 1e-8, 0, 1e-6), ((5, 7), 0, 2, 1e-8), ((ROWS + 2, ROWS + 3), 0, 0, 1e-8)],
)
def test_least_squares_both_directions_equal_lstsq(widths, ridge, spread, tolerance):
    """In a stream of batches."""
    x, y = paired_activations(600, *widths)
    x = x * torch.logspace(-spread, spread, widths[0], dtype=torch.float64) + spread
    fit, one_way = (LeastSquares(*widths, both, ridge) for both in (True, False))
    for a, b in zip(x.split((1, 2, 597)), y.split((1, 2, 597)), strict=True):
        fit.update(a[None], b[None])
        one_way.update(a, b)
    assert_close(fit.x_to_y(), solved_by_torch(x, y), tolerance)
    assert_close(one_way.x_to_y(), solved_by_torch(x, y), tolerance)
    assert_close(fit.y_to_x(), solved_by_torch(y, x), tolerance)


@pytest.mark.parametrize('exact', [True, False])
def test_least_squares_weights_are_of_squared_errors(exact):
    x, y = paired_activations()
    weights = torch.rand(10, 20, dtype=torch.float64) * 5
    fit = LeastSquares(5, 7, ridge=1e-8, exact=exact)
    for a, b, w in zip(x.split(80), y.split(80), weights.split(4), strict=True):
        fit.update(a.unflatten(0, (-1, 20)), b.unflatten(0, (-1, 20)), w)
    root = weights.flatten()[:, None].sqrt()
    ones = torch.cat([x, torch.ones(200, 1, dtype=x.dtype)], dim=1)
    solution = torch.linalg.lstsq(root * ones, root * y).solution
    assert_close(fit.x_to_y(), (solution[:-1].T, solution[-1]), 1e-6 if exact else 1e-3)


@pytest.mark.parametrize(
    'spoil',
    [
        lambda x: x[:, [0, 0, 1, 2, 3]],
        lambda x: x[:1],
        lambda x: x * torch.tensor([1.0, 1, 0, 1, 1]),
    ],
)
def test_least_squares_dependent_activations_give_a_finite_map(spoil):
    x = spoil(paired_activations()[0])
    y = x @ torch.randn(5, 7, dtype=torch.float64) + 2
    fit = fitted(x, y)
    weight, bias = fit.x_to_y()
    assert_close(x @ weight.T + bias, y, 1e-4)
    assert all(part.isfinite().all() for part in (weight, bias, *fit.y_to_x()))


def test_least_squares_singular_sums_give_a_finite_map():
    """As of hidden channels whose means are far above their variances."""
    x, y = 100 + torch.randn(200, 200) / 1000, torch.randn(200, 7)
    fit = fitted(x, y, ridge=1e-7, exact=False)
    _, failed = torch.linalg.cholesky_ex(fit.sums[0] * (1 + 1e-7 * torch.eye(201)))
    assert failed
    weight, bias = fit.x_to_y()
    assert_close((x.double() @ weight.T + bias).mean(0), y.double().mean(0), 1e-2)


@pytest.mark.parametrize('which, value', [(0, float('nan')), (1, float('inf'))])
def test_least_squares_activations_not_finite_are_refused(which, value):
    x, y = paired_activations()
    fit, spoilt = fitted(x, y), [x.clone(), y.clone()]
    spoilt[which][17, 2] = value
    fit.update(*spoilt)
    fit.update(x, y)  # which does not hide the bad ones
    for solve in (fit.x_to_y, fit.y_to_x):
        with pytest.raises(ValueError, match='anchors.init_cfg'):
            solve()
    with pytest.raises(ValueError, match='train_dataloader.dataset'):
        LeastSquares(2, 3).x_to_y()


@torch.no_grad()
def maps_by_hand(net, images):
    """Return weight and bias of every stitching layer, fitted to all its joints."""
    states, maps = {}, {}
    for a, anchor in enumerate(net.anchors):
        after = [anchor.embed(images), *states_of(anchor, images)]
        states |= {(a, i): s.tokens for i, s in enumerate(after, start=-1)}
    for name, joints in net.space.joints.items():
        ends = zip(*joints, strict=True)
        x, y = (torch.cat([states[place] for place in places]) for places in ends)
        maps[name] = tuple(t.float() for t in fitted(x, y).x_to_y())
    return maps


@pytest.fixture
def networks(build_snnet, build_vit):
    """Builders of stitched networks of all spaces and layers."""
    registers = dict(num_registers=2, rel_pos_bias=True, drop_path_rate=0.9)
    plain = dict(stitching_layer=dict(type='StitchingLayer'), anchor=registers)
    anchors = [build_vit(width, 4) for width in (8, 12, 16)]
    swins = swin(8), swin(12, (2, 2, 9, 2))
    shared = lambda: SNNetv1(swins, out='end', share_layers=True)  # noqa: E731
    # Stitch 14 changes between the two slowest anchors.
    part = dict(depths=(3, 4, 5), widths=(8, 12, 16), out='end', stitch_ids=[14])
    return dict(
        registers=lambda: build_snnet(**plain),
        chain=lambda: build_snnet((2, 3, 7), (8, 12, 16)),
        part=lambda: build_snnet(**part),
        windows=lambda: SNNetv1(anchors, out='end', direction='SF'),
        shared=lambda: disturb(shared()),
    )


@pytest.mark.parametrize('name', ['registers', 'chain', 'part', 'windows', 'shared'])
def test_fit_stitching_layers_sets_least_squares_maps(networks, name):
    training = name in ('registers', 'part')
    net, batch = networks[name]().eval(), torch.randn(12, 3, 64, 64)
    expected = maps_by_hand(net, batch)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    if name == 'part':
        net.anchors[0].embed = None  # without layers, it is not run
        assert set(expected) == {'2to1_0', '1to2_3'}
    batches = [batch] if training else iter(batch.split((5, 5, 2)))
    assert fit_stitching_layers(net.train(training), batches) == 12
    assert {m.training for m in net.modules()} == {training}
    found = {n: (m.weight, m.bias) for n, m in net.stitching_layers.items()}
    assert_close(found, expected, 1e-4)
    assert net.stitching_initialized
    for key, value in net.state_dict().items():
        fitted = key.startswith('stitching_') and 'lora' not in key
        assert value.equal(before[key]) != fitted, key


# Gaps that end at a block that is read, and narrow branches one after the other.
CHAINS = ['2:2/0 3:0/32', '0:1/5 1:1/9 2:0/0 3:0/7', '0:0/0 1:0/1 2:2/3 3:1/0']


@pytest.fixture
def elastic(build_vit, randomise):
    def build(chains=CHAINS, anchor=None, **kwargs):
        anchor = anchor or build_vit(8, 4, final_norm=True)
        net = randomise(ElasticBackbone([anchor], chains, **kwargs)).eval()
        for order in net.unit_orders.values():
            order.index.copy_(torch.randperm(len(order.index)))
        return net

    return build


STAGED = ['2:0 5:0 6:0 10:0 11:0 12:0 14:0 15:0']
STAGED += ['1:0 2:0 4:0 5:0 6:0 8:0 9:0 10:0 12:0 14:0 15:0']


@torch.no_grad()
@pytest.mark.parametrize('staged', [False, True])
def test_fit_in_turn_equals_lstsq_at_each_layer(elastic, staged):
    """Of what reaches the layer on this chain."""
    net, images = elastic(out_indices=(2, 3)), torch.randn(24, 3, 32, 32)
    if staged:
        anchor = disturb(MODELS.build(resnet('resnet50', out_indices=(15,))))
        net, images = elastic(STAGED, anchor), torch.randn(40, 3, 64, 64)
    view, rounds = net.view, []
    whole = [view.embed(images)]
    for i in range(view.depth):
        whole.append(view.run_block(whole[-1], i))
    progress = lambda *done: rounds.append(done)  # noqa: E731
    fit_in_turn(net, iter(images.split(15)), ridge=1e-10, progress=progress)
    number = len({spec.target for spec in net.space.layers.values()})
    assert rounds == [(n + 1, number) for n in range(number)]
    assert net.stitching_initialized
    for stitch in net.space:
        state = whole[0]
        for step in stitch.steps[1:]:
            if not isinstance(step, str):
                state = view.run_block(state, step.block)
                continue
            layer = net.stitching_layers[step]
            x, y = state.tokens, whole[net.space.layers[step].target.block + 1].tokens
            if step in net.space.narrow:
                x, y = layer.hidden(state), y - x
            x, y = x.flatten(0, 1).double(), y.flatten(0, 1).double()
            weight, bias = solved_by_torch(x, y)
            best = (x @ weight.T + bias - y).norm()
            found = (layer(x.float()) - y).norm()
            assert_close(found / y.norm(), best / y.norm(), 5e-3 if staged else 1e-3)
            state = layer.map_state(state)


@torch.no_grad()
def test_fit_in_turn_weighs_tokens(elastic):
    net, images = elastic(CHAINS[1:]).train(), torch.randn(12, 3, 32, 32)
    fit_in_turn(net, [images])
    maps = {k: v.clone() for k, v in net.stitching_layers.state_dict().items()}
    assert net.training

    def weigh(batch, state):
        weights = torch.zeros(state.tokens.shape[:2])
        weights[: len(images) // 2] = 1  # none of the images that follow
        return weights

    batches = [torch.cat([x, torch.randn_like(x)]) for x in images.split(6)]
    fit_in_turn(net, batches, weigh=weigh)
    for name, value in net.stitching_layers.state_dict().items():
        assert_close(value, maps[name], 3e-3)
    with pytest.raises(ValueError, match='train_dataloader.dataset'):
        fit_in_turn(net, iter(()))


def test_layer_fit_constant_prefix_token_gets_offset_alone():
    """Such as a cls token before the first block, beside rounding errors of sums."""
    x, y = torch.randn(2, 500, 6, 16)
    x[:, 0] = torch.randn(16)
    fit = LayerFit(PrefixStitchingLayer(16, 16, num_prefix=1), 1e-4)
    fit.update(TokenState(x, (1, 5)), TokenState(y, (1, 5)))
    fit.set_maps()
    found = fit.layer.map_state(TokenState(x, (1, 5))).tokens[:, 0]
    assert_close(found, y[:, 0].mean(0).expand_as(found), 1e-3)


def test_layer_fit_prefix_tokens_differ_from_common_map():
    """By a damped difference."""
    x, y = torch.randn(2, 30, 6, 4, dtype=torch.float64)
    layer = PrefixStitchingLayer(4, 4, num_prefix=2)
    fit = LayerFit(layer, 0)
    for a, b in zip(x.split(10), y.split(10), strict=True):
        fit.update(TokenState(a, (2, 2)), TokenState(b, (2, 2)))
    fit.set_maps()
    weight, bias = solved_by_torch(x.flatten(0, 1), y.flatten(0, 1))
    assert_close((layer.weight, layer.bias), (weight.float(), bias.float()), 1e-4)
    few, left = x[:, :2].flatten(0, 1), y[:, :2].flatten(0, 1)
    left = left - few @ weight.T - bias
    centred = few - few.mean(0)
    damping = (centred.square().sum() / 4).sqrt() * torch.eye(4).double()
    stacked = torch.cat([centred, damping]), torch.cat([left, 0 * damping])
    more = torch.linalg.lstsq(*stacked).solution
    offset = left.mean(0) - few.mean(0) @ more
    wanted = (weight + more.T).float(), (bias + offset).float()
    assert_close((layer.prefix.weight, layer.prefix.bias), wanted, 1e-4)
    tokens = x.float()
    mapped = layer.map_state(TokenState(tokens, (2, 2))).tokens
    assert_close(mapped[:, :2], layer.prefix(tokens[:, :2]))
    assert_close(mapped[:, 2:], layer(tokens[:, 2:]))
