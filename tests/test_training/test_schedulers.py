import pytest
import torch
from mmengine.registry import PARAM_SCHEDULERS
from torch.optim.lr_scheduler import OneCycleLR

RATES = (2e-3, 5e-4)


def new_optimizer(kind=torch.optim.AdamW, **kwargs):
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in RATES]
    groups = [dict(params=[w], lr=lr) for w, lr in zip(weights, RATES, strict=True)]
    return kind(groups, lr=1, **kwargs)


def momentum_of(group):
    return group['betas'][0] if 'betas' in group else group['momentum']


def values(optimizer, schedulers, steps):
    """Rates and momenta of all groups, step by step."""
    seen = []
    for _ in range(steps):
        seen.append([(g['lr'], momentum_of(g)) for g in optimizer.param_groups])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    return torch.tensor(seen, dtype=torch.float64)


@pytest.mark.parametrize(
    'kind, kwargs, pct_start',
    [(torch.optim.AdamW, {}, 0.3), (torch.optim.SGD, dict(momentum=0.9), 0.5)],
)
def test_group_one_cycle_lr_equals_torch(kind, kwargs, pct_start):
    theirs = new_optimizer(kind, **kwargs)
    settings = dict(div_factor=25, final_div_factor=100, pct_start=pct_start)
    reference = OneCycleLR(theirs, max_lr=RATES, total_steps=40, **settings)
    ours = new_optimizer(kind, **kwargs)
    schedulers = [
        PARAM_SCHEDULERS.build(
            dict(optimizer=ours, begin=0, end=40, by_epoch=False, **cfg)
        )
        for cfg in (
            dict(type='GroupOneCycleLR', **settings),
            dict(type='OneCycleMomentum', pct_start=pct_start),
        )
    ]
    expected = values(theirs, [reference], 39)
    torch.testing.assert_close(
        values(ours, schedulers, 39), expected, rtol=1e-9, atol=0
    )
    # The groups keep the ratio of their own rates.
    assert expected[7, 0, 0] / expected[7, 1, 0] == pytest.approx(4)
