import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from fits import maps_by_hand, maps_of
from staged_anchors import disturb, resnet, swin

from snnet_mm.models import (
    LeastSquares,
    SNNetv1,
    convert_ziplab,
    fit_stitching_layers,
)


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


def test_both_directions_equal_lstsq():
    x, y = paired_activations()
    fit = fitted(x, y)
    close = dict(rtol=1e-6, atol=1e-6)
    for found in (fit, fitted(x, y, both_ways=False)):
        torch.testing.assert_close(found.x_to_y(), solved_by_torch(x, y), **close)
    torch.testing.assert_close(fit.y_to_x(), solved_by_torch(y, x), **close)


def test_without_a_ridge_it_is_exact_for_channels_of_any_scale():
    x, y = paired_activations()
    x = x * torch.logspace(-2, 2, 5, dtype=torch.float64) + 3
    fit = fitted(x, y, ridge=0)
    close = dict(rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(fit.x_to_y(), solved_by_torch(x, y), **close)
    torch.testing.assert_close(fit.y_to_x(), solved_by_torch(y, x), **close)


def test_a_heavy_ridge_shrinks_the_weight_and_leaves_the_mean_to_the_bias():
    x, y = paired_activations()
    weight, bias = fitted(x, y, ridge=1e9).x_to_y()
    assert weight.abs().max() < 1e-6
    torch.testing.assert_close(bias, y.mean(0), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize('sizes', [(200,), (100, 100), (1, 2, 197), (7,) * 28 + (4,)])
def test_streaming_equals_all_at_once(sizes):
    x, y = paired_activations()
    fit = LeastSquares(5, 7)
    for a, b in zip(x.split(sizes), y.split(sizes), strict=True):
        fit.update(a[None], b[None])
    assert fit.num_seen == 200
    at_once = fitted(x, y)
    torch.testing.assert_close(fit.x_to_y(), at_once.x_to_y(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fit.y_to_x(), at_once.y_to_x(), rtol=1e-9, atol=1e-9)


def test_sums_are_float64_for_float32_activations():
    # In float32 so large an offset would cost the sums most of their digits.
    x = torch.randn(1000, 2) + 100
    y = x @ torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    found = fitted(x, y, ridge=0).x_to_y()
    expected = solved_by_torch(x.double(), y.double())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    'spoil',
    [
        lambda x: x[:, [0, 0, 1, 2, 3]],
        lambda x: x[:3],
        lambda x: x[:1],
        lambda x: x * torch.tensor([1.0, 1, 0, 1, 1]),
        lambda x: x * 0,
        lambda x: x * 0 + 5,
        lambda x: x * 1e-12,
    ],
    ids=['equal', 'three', 'one', 'dead', 'zeros', 'constant', 'tiny'],
)
def test_dependent_activations_give_a_finite_map_that_fits(spoil):
    x, _ = paired_activations()
    x = spoil(x)
    y = x @ torch.randn(5, 7, dtype=torch.float64) + 2
    fit = fitted(x, y)
    for weight, bias in (fit.x_to_y(), fit.y_to_x()):
        assert weight.isfinite().all()
        assert bias.isfinite().all()
    weight, bias = fit.x_to_y()
    torch.testing.assert_close(x @ weight.T + bias, y, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
@pytest.mark.parametrize('which', [0, 1])
def test_activations_that_are_not_finite_are_refused(value, which):
    x, y = paired_activations()
    fit = fitted(x, y)
    spoilt = [x.clone(), y.clone()]
    spoilt[which][17, 2] = value
    fit.update(*spoilt)
    # Good activations afterwards do not hide the bad ones.
    fit.update(x, y)
    assert fit.num_seen == 600
    for solve in (fit.x_to_y, fit.y_to_x):
        with pytest.raises(ValueError, match='finite activations'):
            solve()


def test_nothing_seen_is_refused():
    with pytest.raises(ValueError, match='images to fit the stitching'):
        LeastSquares(2, 3).x_to_y()


def fit_on_rank(rank, folder):
    dist.init_process_group(
        'gloo', init_method=f'file://{folder}/store', rank=rank, world_size=2
    )
    x, y = torch.load(f'{folder}/activations.pth')
    # Unequal shares: ranks with few images weigh less.
    share = slice(None, 60) if rank == 0 else slice(60, None)
    fit = fitted(x[share], y[share])
    fit.all_reduce()
    torch.save((fit.x_to_y(), fit.y_to_x()), f'{folder}/{rank}.pth')
    dist.destroy_process_group()


def test_two_ranks_find_the_map_of_one(tmp_path):
    x, y = paired_activations()
    torch.save((x, y), tmp_path / 'activations.pth')
    mp.start_processes(fit_on_rank, (tmp_path,), nprocs=2, start_method='fork')
    first, second = (torch.load(tmp_path / f'{rank}.pth') for rank in (0, 1))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    wanted = fitted(x, y).x_to_y(), fitted(x, y).y_to_x()
    torch.testing.assert_close(first, wanted, rtol=1e-9, atol=1e-9)


# --- all stitching layers of a backbone

DEPTHS = 3, 7


def images(n=12):
    return torch.randn(n, 3, 32, 32)


@pytest.mark.parametrize('layer', ['StitchingLayer', 'LoRAStitchingLayer'])
@pytest.mark.parametrize('num_registers', [0, 2])
def test_layers_become_the_least_squares_maps(build_snnet, layer, num_registers):
    cfg = dict(type=layer, **(dict(rank=2) if 'LoRA' in layer else {}))
    net = build_snnet(
        DEPTHS,
        stitching_layer=cfg,
        anchor=dict(num_registers=num_registers, rel_pos_bias=True),
    )
    batch = images()
    expected = maps_by_hand(net, batch)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert fit_stitching_layers(net, [batch]) == 12
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-6, atol=1e-6)
    assert net.stitching_initialized
    for key, value in net.state_dict().items():
        fitted = key.startswith('stitching_') and 'lora' not in key
        assert value.equal(before[key]) != fitted, key


@pytest.fixture
def networks(build_snnet, build_vit):
    plain = [build_vit(width, 4) for width in (8, 12, 16)]
    return dict(
        chain=build_snnet((2, 3, 7), (8, 12, 16)),
        windows=SNNetv1(plain, out='end', direction='SF'),
        stages=disturb(SNNetv1([resnet(), swin(12, (2, 2, 3, 2))], out_indices=(1, 8))),
    )


@pytest.mark.parametrize('sizes', [(12,), (5, 5, 2)])
@pytest.mark.parametrize('name', ['chain', 'windows', 'stages'])
def test_layers_of_other_spaces_become_the_least_squares_maps(networks, name, sizes):
    net, batch = networks[name].eval(), torch.randn(12, 3, 64, 64)
    expected = maps_by_hand(net, batch)
    assert fit_stitching_layers(net, iter(batch.split(sizes))) == 12
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-4, atol=1e-4)


def test_an_anchor_without_layers_is_not_fitted_to(build_snnet):
    # Stitch 14 changes between the two slowest anchors.
    net = build_snnet((3, 4, 5), (8, 12, 16), out='end', stitch_ids=[14])
    batch = images()
    net.anchors[0].embed = None
    fit_stitching_layers(net, [batch])
    expected = maps_by_hand(net, batch)
    assert set(maps_of(net)) == {'2to1_0', '1to2_3'}
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-5, atol=1e-5)


def test_maps_of_the_authors(golden):
    net = golden.build()
    net.load_state_dict(convert_ziplab(golden.part('sd.')))
    net.stitching_initialized.fill_(False)
    assert fit_stitching_layers(net, [golden.tensors['ls.x']]) == 8
    theirs = convert_ziplab(golden.part('ls.'))
    del theirs['stitching_initialized'], theirs['x']
    assert len(theirs) == 2 * (12 + 11)
    for key, expected in theirs.items():
        found = net.get_parameter(key)
        assert (found - expected).norm() < 1e-5 * expected.norm(), key
    assert net.stitching_initialized


@pytest.mark.parametrize('training', [True, False])
def test_anchors_run_in_eval_mode_and_the_mode_is_restored(build_snnet, training):
    net = build_snnet(DEPTHS, anchor=dict(drop_path_rate=0.9)).train(training)
    batch = images()
    fit_stitching_layers(net, [batch])
    assert {m.training for m in net.modules()} == {training}
    expected = maps_by_hand(net.eval(), batch)
    torch.testing.assert_close(maps_of(net), expected, rtol=1e-6, atol=1e-6)


def test_between_equal_anchors_every_stitch_is_the_anchor(build_snnet):
    # Least squares finds the identity.
    net = build_snnet(
        (3, 3), widths=(8, 8), stitching_layer=dict(type='StitchingLayer')
    )
    net.anchors[1].load_state_dict(net.anchors[0].state_dict())
    fit_stitching_layers(net, [images()])
    net.eval()
    batch = images(2)
    with torch.no_grad():
        (expected,) = net(batch)
        for stitch in net.space:
            net.set_stitch(stitch.id)
            torch.testing.assert_close(net(batch)[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize('training', [True, False])
def test_a_fit_that_is_refused_leaves_the_backbone(build_snnet, training):
    net = build_snnet(DEPTHS).train(training)
    before = {n: w.clone() for n, (w, _) in maps_of(net).items()}
    spoilt = images()
    spoilt[7, 1, 5, 5] = float('nan')
    with pytest.raises(ValueError, match='finite activations'):
        fit_stitching_layers(net, [spoilt[:6], spoilt[6:]])
    assert all(w.equal(before[n]) for n, (w, _) in maps_of(net).items())
    assert not net.stitching_initialized
    assert net.training == training
