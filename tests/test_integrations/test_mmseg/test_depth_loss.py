import math

import pytest
import torch
from mmengine.logging import MessageHub

from snnet_mm.integrations.mmseg import ScaleInvariantLogLoss

EPS = 1e-3


@pytest.fixture(autouse=True)
def at_iteration():
    """Says how far the run is, as the runner does; there is none at first."""
    hub = MessageHub.get_current_instance()
    hub.runtime_info.pop('iter', None)  # of a run in an earlier test
    yield lambda iteration: hub.update_info('iter', iteration)
    hub.runtime_info.pop('iter', None)


def log_differences(*values):
    """Predictions and truths whose logarithms differ by the values."""
    truth = torch.linspace(0.5, 3, len(values), dtype=torch.float64)
    pred = (truth + EPS) * torch.tensor(values).exp() - EPS
    return pred.view(1, 1, 1, -1), truth.view(1, 1, 1, -1)


@pytest.mark.parametrize('iteration, warm', [(None, False), (99, True), (100, False)])
def test_first_iterations_learn_the_scale_alone(at_iteration, iteration, warm):
    if iteration is not None:
        at_iteration(iteration)
    pred, truth = log_differences(0.1, 0.3, -0.2, 0.6)
    loss = ScaleInvariantLogLoss(warm_up_iters=100, loss_weight=2)(pred, truth)
    mean, var = 0.2, (0.01 + 0.01 + 0.16 + 0.16) / 3
    square = 0.15 * mean**2 + (0 if warm else var)
    assert loss.item() == pytest.approx(2 * math.sqrt(square), rel=1e-5)


def test_all_pixels_with_truth_count_together():
    pred, truth = log_differences(0.1, 0.3, -0.2, 0.6)
    alone = ScaleInvariantLogLoss()(pred, truth)
    batch = [x.view(2, 1, 1, 2) for x in (pred, truth)]
    assert ScaleInvariantLogLoss()(*batch).item() == alone.item()
    pred = torch.cat([pred, torch.full_like(pred, 7)], dim=2).requires_grad_()
    truth = torch.cat([truth, torch.zeros_like(truth)], dim=2)
    loss = ScaleInvariantLogLoss()(pred, truth)
    assert loss.item() == alone.item()
    loss.backward()
    assert pred.grad[..., 0, :].ne(0).all()
    assert pred.grad[..., 1, :].eq(0).all()


@pytest.mark.parametrize('iteration', [0, 1000])
@pytest.mark.parametrize(
    'pred, truth, expected',
    [
        ([2.0, 3.0], [2.0, 3.0], 1e-6),  # perfect
        ([2.0, 3.0], [0.0, 0.0], 0),  # no truth
        ([2.0, 3.0], [2.0, 0.0], 1e-6),  # a single pixel
        ([0.0, 0.0], [1.0, 1.0], None),  # far off
    ],
)
def test_gradients_are_finite(at_iteration, iteration, pred, truth, expected):
    at_iteration(iteration)
    pred = torch.tensor(pred, requires_grad=True)
    loss = ScaleInvariantLogLoss()(pred, torch.tensor(truth))
    loss.backward()
    assert pred.grad.isfinite().all()
    assert (pred.grad < 0).all() if expected is None else pred.grad.eq(0).all()
    assert loss > 1 if expected is None else loss.item() == pytest.approx(expected)


def test_half_precision_predictions():
    pred, truth = log_differences(0.1, 0.3, -0.2, 0.6)
    loss = ScaleInvariantLogLoss()(pred.half(), truth.float())
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.sqrt(0.34 / 3 + 0.006), rel=1e-2)
