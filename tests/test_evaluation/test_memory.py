from functools import partial

import pytest
import torch

from snnet_mm.evaluation import cost_table, measure_memory
from snnet_mm.evaluation.memory import _LiveTensors, count_peak
from snnet_mm.evaluation.parts import as_shipped

SIZE = (32, 48)


def test_the_peak_of_operations_by_hand():
    def run(x):
        a = x + 1  # 400
        b = a.view(10, 10) * 2  # 800; the view is no memory
        del a  # 400
        b.relu_()  # in place
        c = b.double()  # 1200: the peak
        del b
        return c.sum()  # 808

    assert count_peak(partial(run, torch.zeros(100))) == 1200


def test_memory_that_is_freed_can_be_taken_again():
    def run(x):
        for _ in range(50):
            x = x * 2

    # Two at once: the old one is there until the new one is.
    assert count_peak(partial(run, torch.zeros(100))) == 800


@pytest.mark.parametrize('layer', ['StitchingLayer', 'LoRAStitchingLayer'])
@pytest.mark.parametrize(('depths', 'batch'), [((3, 7), 1), ((2, 3, 7), 2)])
def test_memory_is_that_of_a_real_forward(build_snnet, layer, depths, batch):
    layer = dict(type=layer) | (dict(rank=2) if layer.startswith('LoRA') else {})
    widths = (8, 12, 16)[: len(depths)]
    net = build_snnet(depths, widths, stitching_layer=layer, out_indices=(1, 6))
    memory = measure_memory(net, SIZE, batch)
    params = cost_table(net, SIZE).column('params')
    images = torch.zeros(batch, 3, *SIZE)
    with as_shipped(net):
        for stitch_id in net.space.ids:
            net.set_stitch(stitch_id)
            with _LiveTensors() as live:
                net(images)
            expected = 4 * params[stitch_id] + 4 * images.numel() + live.peak
            assert memory[stitch_id] == expected


def test_memory_of_the_fast_anchor_in_closed_form(build_snnet):
    net = build_snnet(stitching_layer=dict(type='StitchingLayer'), out='end')
    tokens = 1 + 4 * 6
    # At the peak, in the last block: the state in front, the same behind attention,
    # its normed copy with mean and deviation, four times the width before and behind
    # the activation.
    floats = tokens * 8 * (1 + 1 + 1 + 4 + 4)
    peak = measure_memory(net, SIZE)[0] - 4 * cost_table(net, SIZE)[0].params
    assert peak == pytest.approx(4 * (floats + 3 * 32 * 48), rel=0.05)


def test_half_precision_takes_half_the_memory(build_snnet):
    net = build_snnet(stitching_layer=dict(type='StitchingLayer'))
    single = measure_memory(net, SIZE)
    half = measure_memory(net.bfloat16(), SIZE)
    for i in single:
        assert half[i] == pytest.approx(single[i] / 2, rel=0.01)


def test_attention_stores_no_matrix(build_snnet):
    net = build_snnet(stitching_layer=dict(type='StitchingLayer'), out='end')
    small, large = (measure_memory(net, (s, s))[1] for s in (128, 256))
    # 4 times the tokens: at most 4 times the memory, a matrix would be 16 times.
    assert large < 4.01 * small


def test_the_model_is_left_as_it_was(build_snnet):
    net = build_snnet().train()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    layers, active = dict(net.stitching_layers), net.active_stitch
    measure_memory(net, SIZE)
    assert dict(net.stitching_layers) == layers
    assert net.active_stitch is active
    assert all(m.training for m in net.modules())
    for key, value in net.state_dict().items():
        assert value.device.type == 'cpu'
        assert torch.equal(value, state[key])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
def test_memory_on_a_gpu_is_near_the_counted_one(build_snnet):
    net = build_snnet((4, 8), widths=(64, 512))
    counted = measure_memory(net, (256, 256), batch=4)
    measured = measure_memory(net.cuda(), (256, 256), batch=4)
    for i in counted:
        assert measured[i] == pytest.approx(counted[i], rel=0.5)


def test_training_is_counted_as_on_real_tensors(build_vit):
    def step(vit, device):
        maps = vit(torch.zeros(2, 3, *SIZE, device=device))
        maps[0].sum().backward()

    vit = build_vit(embed_dims=16, depth=4).train()
    with torch.device('meta'):
        meta = build_vit(embed_dims=16, depth=4).train()
    with _LiveTensors() as live:
        step(vit, 'cpu')
    counted = count_peak(partial(step, meta, 'meta'))
    # A real kernel keeps one number more per query and head.
    assert 0.98 * live.peak < counted < live.peak
