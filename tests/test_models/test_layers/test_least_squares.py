import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from snnet_mm.models import LeastSquares


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
    mp.spawn(fit_on_rank, args=(tmp_path,), nprocs=2)
    first, second = (torch.load(tmp_path / f'{rank}.pth') for rank in (0, 1))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    wanted = fitted(x, y).x_to_y(), fitted(x, y).y_to_x()
    torch.testing.assert_close(first, wanted, rtol=1e-9, atol=1e-9)
