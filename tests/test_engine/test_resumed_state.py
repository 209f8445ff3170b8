"""What is asked of a checkpoint before a training goes on from it."""

import copy

import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.optim import OptimWrapper
from torch import nn

from snnet_mm.engine.resumed_state import check_resumed_state

REMOVED = object()


@pytest.fixture
def trained():
    """The optimizer of a linear layer after a step, and its checkpoint."""
    net = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    hub = dict(
        log_scalars=dict(loss=HistoryBuffer([1.0], [1])),
        runtime_info=dict(iter=1, stitch_histogram={0: 1}),
        resumed_keys={},
    )
    checkpoint = dict(
        meta=dict(epoch=0, iter=1, seed=3),
        message_hub=hub,
        optimizer=copy.deepcopy(optimizer.state_dict()),
    )
    return checkpoint, OptimWrapper(optimizer)


def set_at(checkpoint, path, value):
    """Set an entry, or remove it; numbers in a path are keys or places in a list."""
    *parents, last = [int(key) if key.isdigit() else key for key in path.split('.')]
    for key in parents:
        checkpoint = checkpoint[key]
    if value is REMOVED:
        del checkpoint[last]
    else:
        checkpoint[last] = value


def test_a_whole_checkpoint_can_be_resumed(trained):
    checkpoint, optim_wrapper = trained
    check_resumed_state(checkpoint, 'a.pth', optim_wrapper)
    check_resumed_state(checkpoint, 'a.pth')
    # Several optimizers are by their names, and are not looked into.
    checkpoint['optimizer'] = dict(first=checkpoint['optimizer'])
    check_resumed_state(checkpoint, 'a.pth')


@pytest.mark.parametrize(
    ('path', 'value', 'fault'),
    [
        ('optimizer', REMOVED, 'it has no optimizer, only meta, message_hub'),
        ('meta.iter', REMOVED, 'it has no meta.iter, only meta'),
        ('meta', [1], 'meta is a list'),
        ('meta.epoch', -1, 'meta.epoch is -1'),
        ('meta.iter', '1', "meta.iter is '1'"),
        ('meta.seed', 0.5, 'meta.seed is 0.5'),
        ('message_hub', [], 'message_hub is a list'),
        ('message_hub.runtime_info', REMOVED, 'message_hub.runtime_info is None'),
        ('message_hub.log_scalars.loss', 1.0, 'log_scalars.loss is a float'),
        ('message_hub.runtime_info.stitch_histogram', 3, 'stitch_histogram is 3'),
        ('message_hub.runtime_info.stitch_scores', [1], r'stitch_scores is \[1\]'),
        ('optimizer', 'adam', 'optimizer is a str'),
        ('optimizer.state', [], 'optimizer.state is a list'),
        ('optimizer.state', {}, 'optimizer.state is empty'),
        ('optimizer.param_groups', [], 'param_groups are not the 1 of the model'),
        ('optimizer.param_groups.0', 1, 'param_groups.0 is a int'),
        ('optimizer.param_groups.0.params', [0], '0 is of other parameters than the'),
        ('optimizer.param_groups.0.lr', REMOVED, 'param_groups.0.lr is None'),
        ('optimizer.param_groups.0.weight_decay', '0', "0.weight_decay is '0'"),
        ('optimizer.state.7', {}, 'state.7 is of no parameter'),
        ('optimizer.state.1.exp_avg', REMOVED, 'state.1 is not as that of other'),
        ('optimizer.state.0.step', 'one', 'state.0.step does not fit'),
        ('optimizer.state.0.exp_avg', torch.ones(2), 'state.0.exp_avg does not fit'),
        (
            'optimizer.state.1.exp_avg_sq',
            torch.tensor([1, float('nan')]),
            'state.1.exp_avg_sq does not fit',
        ),
        (
            'optimizer.state.1.exp_avg',
            torch.ones(2, dtype=torch.complex64),
            'state.1.exp_avg does not fit',
        ),
    ],
)
def test_a_fault_is_named(path, value, fault, trained):
    checkpoint, optim_wrapper = trained
    set_at(checkpoint, path, value)
    message = rf'^checkpoint a\.pth cannot be resumed: .*{fault}'
    with pytest.raises(ValueError, match=message):
        check_resumed_state(checkpoint, 'a.pth', optim_wrapper)


def test_an_optimizer_without_momentum_has_no_moments(trained):
    checkpoint, _ = trained
    sgd = torch.optim.SGD(nn.Linear(3, 2).parameters(), lr=0.1)
    checkpoint['optimizer'] = sgd.state_dict()
    check_resumed_state(checkpoint, 'a.pth', OptimWrapper(sgd))
