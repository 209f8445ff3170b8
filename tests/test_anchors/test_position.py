import pytest
import torch

from snnet_mm.anchors.position import (
    RelativePositionBias,
    relative_position_index,
)


def index_by_formula(grid, num_prefix):
    h, w = grid
    num_offsets = (2 * h - 1) * (2 * w - 1)
    tokens = [None] * num_prefix + [(y, x) for y in range(h) for x in range(w)]

    def row(query, key):
        if query is None:
            return num_offsets + (2 if key is None else 0)
        if key is None:
            return num_offsets + 1
        dy, dx = query[0] - key[0], query[1] - key[1]
        return (dy + h - 1) * (2 * w - 1) + dx + w - 1

    return torch.tensor([[row(q, k) for k in tokens] for q in tokens])


@pytest.mark.parametrize('grid', [(1, 1), (2, 3), (1, 4)])
@pytest.mark.parametrize('num_prefix', [0, 1, 3])
def test_index_by_formula(grid, num_prefix):
    expected = index_by_formula(grid, num_prefix)
    assert relative_position_index(grid, num_prefix).equal(expected)


@pytest.fixture
def bias():
    module = RelativePositionBias((2, 3), num_heads=4, num_prefix=1)
    torch.nn.init.normal_(module.table)
    return module


def gathered(table, grid):
    return table[index_by_formula(grid, 1)].permute(2, 0, 1)[None]


@torch.no_grad()
@pytest.mark.parametrize('event', ['load', 'in place', 'train', 'eval', 'move'])
def test_kept_bias_follows_new_weights(bias, event):
    parent = torch.nn.Sequential(bias).eval()
    before, table = bias((2, 3)), bias.table + 1
    assert bias((2, 3)) is before
    with torch.enable_grad():
        assert bias((2, 3)).requires_grad
    if event == 'load':
        parent.load_state_dict({'0.table': table})
    elif event == 'in place':
        bias.table.copy_(table)
    elif event == 'move':
        bias.table.data = table.double()
    else:
        # As averages of weights are swapped in; torch does not count this.
        bias.table.data.copy_(table)
        parent.train(event == 'train')
        parent.eval()
    after = bias((2, 3))
    assert after.equal(gathered(bias.table, (2, 3)))
    assert not after.equal(before.to(after.dtype))
