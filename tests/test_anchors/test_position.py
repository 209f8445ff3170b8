import pytest
import torch

from snnet_mm.anchors.position import RelativePositionBias, relative_position_index


@torch.no_grad()
@pytest.mark.parametrize('event', ['load', 'train', 'eval', 'move'])
def test_relative_position_bias_kept_follows_new_weights(event):
    bias = RelativePositionBias((2, 3), num_heads=4, num_prefix=1)
    torch.nn.init.normal_(bias.table)
    parent = torch.nn.Sequential(bias).eval()
    before, table = bias((2, 3)), bias.table + 1
    assert bias((2, 3)) is before
    with torch.enable_grad():
        assert bias((2, 3)).requires_grad
    if event == 'load':
        parent.load_state_dict({'0.table': table})
    elif event == 'move':
        bias.table.data = table.double()
    else:
        # As averages of weights are swapped in; torch does not count this.
        bias.table.data.copy_(table)
        parent.train(event == 'train')
        parent.eval()
    wanted = bias.table[relative_position_index((2, 3), 1)].permute(2, 0, 1)[None]
    assert bias((2, 3)).equal(wanted)
    assert not wanted.equal(before.to(wanted.dtype))
