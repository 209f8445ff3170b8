import copy

import pytest
import torch
from costs_by_hand import (
    DEPTHS,
    LAYERS,
    NUM_PATCHES,
    SIZE,
    WIDTHS,
    block_cost,
    cost_by_hand,
    embed_cost,
)
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.evaluation import cost_table


@pytest.mark.parametrize('layer', LAYERS, ids=['full', 'lora'])
@pytest.mark.parametrize(
    ('outputs', 'maps'),
    [
        (dict(out_indices=(-1,)), [6]),
        (dict(out_indices=range(7), anchor=dict(lora=dict(rank=3))), range(7)),
        (dict(out_indices=(0, 3, 6), eval_maps=(1,)), [3]),
        (dict(out='end'), []),
    ],
)
def test_costs_in_closed_form(build_snnet, layer, outputs, maps):
    net = build_snnet(DEPTHS, stitching_layer=layer, **outputs)
    table = cost_table(net, SIZE)
    assert table.input_size == SIZE
    assert list(table) == list(net.space.ids)
    for stitch in net.space:
        assert table[stitch.id][:2] == cost_by_hand(stitch, maps), stitch


def test_costs_of_windows_in_closed_form(build_snnet):
    """24 patches in windows of 3x3: 6x6 places with the padding; block 1 is global."""
    windows = dict(
        cls_token=False, window_size=3, global_blocks=(1,), decomposed_rel_pos=True
    )
    net = build_snnet(DEPTHS, anchor=windows)
    fast = cost_table(net, SIZE)[0]
    dim, head = WIDTHS[0], WIDTHS[0] // 2
    mlp, in_windows = NUM_PATCHES * 8 * dim**2, 36
    windowed = in_windows * (4 * dim**2 + 2 * 9 * dim + (3 + 3) * dim) + mlp
    everywhere = NUM_PATCHES * (4 * dim**2 + 2 * NUM_PATCHES * dim + (4 + 6) * dim)
    embed, embed_params = embed_cost(dim)
    projection = NUM_PATCHES * WIDTHS[0] * WIDTHS[1]
    assert fast.flops == embed + 2 * windowed + everywhere + mlp + projection
    _, block_params = block_cost(dim)
    offsets = 2 * 2 * (2 * 3 - 1) * head + 2 * (2 * 4 - 1) * head
    layer_params = (WIDTHS[0] + 1) * WIDTHS[1]
    # No cls token.
    expected = embed_params - dim + 3 * block_params + offsets + layer_params
    assert fast.params == expected


def test_parameters_of_everything_optional(build_snnet):
    net = build_snnet(
        DEPTHS,
        anchor=dict(rel_pos_bias=True, final_norm=True, num_registers=2),
        stitching_layer=LAYERS[0],
    )
    table = cost_table(net, SIZE)
    fast, slow = net.anchors
    last = net.stitching_layers['0to1_2']
    joint = net.stitching_layers['0to1_0']

    def size(*modules):
        return sum(p.numel() for m in modules for p in m.parameters())

    assert table[1].params == size(slow)
    assert table[0].params == size(fast, last)
    fs = size(fast) - size(*fast.blocks[1:], fast.norm)
    fs += size(joint, *slow.blocks[3:], slow.norm)
    assert table[2].params == fs


def counted(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() // 2


@pytest.mark.parametrize('depths', [(4, 9), (2, 4, 9)], ids=['pair', 'chain'])
@pytest.mark.parametrize('layer', LAYERS, ids=['full', 'lora'])
@torch.no_grad()
def test_costs_equal_those_of_real_forwards(build_snnet, layer, depths):
    net = build_snnet(
        depths,
        (8, 12, 16)[: len(depths)],
        stitching_layer=layer,
        out_indices=(1, 4, 8),
        eval_maps=(0, 2),
    )
    table = cost_table(net, (40, 24))
    shipped = copy.deepcopy(net).to('meta').eval()
    for name, module in shipped.stitching_layers.items():
        shipped.stitching_layers[name] = module.merged()
    images = torch.empty(1, 3, 40, 24, device='meta')
    for stitch in net.space:
        shipped.set_stitch(stitch.id)
        assert table[stitch.id].flops == counted(lambda: shipped(images)), stitch


@torch.no_grad()
def test_outputs_are_the_same_after_counting(build_snnet):
    net = build_snnet(anchor=dict(rel_pos_bias=True)).eval()
    images = torch.randn(1, 3, *SIZE)
    before, state = net(images)[0], torch.get_rng_state()
    cost_table(net, SIZE)
    assert net(images)[0].equal(before)
    assert torch.get_rng_state().equal(state)


def test_costs_do_not_depend_on_mode_or_active_stitch(build_snnet):
    net = build_snnet(out_indices=(0, 6), eval_maps=(1,))
    table = cost_table(net.train(), SIZE)
    assert cost_table(nn.DataParallel(net), SIZE) == table
    for stitch_id in net.space.ids:
        net.set_stitch(stitch_id)
        assert cost_table(net.eval(), SIZE) == table
        assert net.active_stitch.id == stitch_id
