import pytest
import torch
from torch import nn

from snnet_mm.costs import (
    cost_table,
    measure,
    measure_latency,
    measure_memory,
    measuring_setup,
)
from snnet_mm.models import StitchingLayer
from snnet_mm.runtime.device import processor
from snnet_mm.stitching import Setup

DEPTHS, SIZE = (3, 7), (32, 48)
OUT_OF_MEMORY = (
    'CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of ...'
)
# Milliseconds that every part takes on the clock of these tests, fast to slow.
EMBED, BLOCK, LAYER, MAP, HEAD = (1, 2, 4), (3, 10, 30), 0.5, 0.25, (20, 40, 50)


class Clock:
    """Time that passes only where a part of the model is run.

    If ``period`` is set, one of so many calls is interrupted for a second.
    """

    now, calls, period = 0.0, 0, None

    def takes(self, module, milliseconds):
        def tick(*_):
            self.calls += 1
            interrupted = self.period and self.calls % self.period == 0
            self.now += 1 if interrupted else milliseconds / 1e3

        module.register_forward_hook(tick)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure.time, 'perf_counter', lambda: clock.now)
    return clock


class Model(nn.Module):
    """The slowest anchor's head reads the last map, each anchor's own its end."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        widths = (anchor.block_dims[-1] for anchor in backbone.anchors)
        self.heads = nn.ModuleList(nn.Linear(width, 2) for width in widths)

    def forward(self, images):
        output = self.backbone(images)
        if self.backbone.out == 'maps':
            return self.heads[-1](output[-1].movedim(1, -1))
        return self.heads[self.backbone.active_stitch.end_anchor](output.tokens)


def set_times(clock, net):
    for a, anchor in enumerate(net.anchors):
        clock.takes(anchor.patch_embed, EMBED[a])
        for i, block in enumerate(anchor.blocks):
            # Blocks differ, as window and global attention do.
            clock.takes(block, BLOCK[a] + i)
    for layer in net.stitching_layers.values():
        clock.takes(layer, LAYER)
    slow, to_feature_map = net.anchors[-1], net.anchors[-1].to_feature_map

    def timed_map(state):
        clock.now += MAP / 1e3
        return to_feature_map(state)

    slow.to_feature_map = timed_map


def latency_by_hand(stitch, maps, depths=DEPTHS):
    run = {(a, i) for a, begin, end in stitch.segments for i in range(begin, end)}
    layers, slowest = set(stitch.layers), len(depths) - 1
    for i in maps:
        a = slowest
        while (a, i) not in run:
            a, i = a - 1, i * depths[a - 1] // depths[a]
        layers |= {f'{a}to{slowest}_{i}'} if a < slowest else set()
    blocks = sum(BLOCK[a] + i for a, i in run)
    embed = EMBED[stitch.segments[0].anchor]
    return embed + blocks + LAYER * len(layers) + MAP * len(maps)


@pytest.mark.parametrize(
    ('depths', 'maps'), [(DEPTHS, (6,)), ((2, 3, 7), (0, 3, 6)), (DEPTHS, ())]
)
def test_measure_latency_in_closed_form(build_snnet, clock, depths, maps):
    layer, widths = dict(type='StitchingLayer'), (8, 12, 16)[: len(depths)]
    outputs = dict(out_indices=maps) if maps else dict(out='end')
    net = build_snnet(depths, widths, stitching_layer=layer, **outputs)
    model = Model(net)
    set_times(clock, net)
    for head, milliseconds in zip(model.heads, HEAD, strict=False):
        clock.takes(head, milliseconds)
    found = measure_latency(model, SIZE, rounds=3, check=net.space.ids)
    for stitch in net.space:
        head = HEAD[len(depths) - 1 if maps else stitch.end_anchor]
        expected = latency_by_hand(stitch, maps, depths) + head
        assert found.by_stitch[stitch.id] == pytest.approx(expected), stitch
    assert [c.stitch_id for c in found.checks] == list(net.space.ids)
    for c in found.checks:
        assert c.measured == pytest.approx(c.predicted), c
        assert c.error == pytest.approx(0, abs=1e-9)
        assert c.spread == pytest.approx(0, abs=1e-9)


def test_measure_latency_without_interrupted_parts(build_snnet, clock):
    """Each part is interrupted in few rounds, but most rounds of a long route are."""
    net = build_snnet(DEPTHS, stitching_layer=dict(type='StitchingLayer'))
    set_times(clock, net)
    clock.period = 7
    found = measure_latency(net, SIZE, rounds=20, check=())
    for stitch in net.space:
        expected = latency_by_hand(stitch, (6,))
        assert found.by_stitch[stitch.id] == pytest.approx(expected), stitch


def test_measure_latency_runs_model_as_shipped(build_snnet, monkeypatch):
    """On images of the number, size and type that were asked for."""
    net = build_snnet(DEPTHS).double().train()
    seen, forward = [], StitchingLayer.forward

    def seeing(self, x):
        seen.append(type(self))
        return forward(self, x)

    monkeypatch.setattr(StitchingLayer, 'forward', seeing)
    images = []
    net.register_forward_pre_hook(lambda _, args: images.append(args[0]))
    layers, active = dict(net.stitching_layers), net.active_stitch
    found = measure_latency(net, SIZE, batch=3, rounds=1)
    assert set(seen) == {StitchingLayer}  # merged
    # By default some of every kind are checked.
    assert [c.stitch_id for c in found.checks] == [0, 1, 3, 6, 7, 8]
    images = {(tuple(x.shape), x.dtype) for x in images if not x.is_meta}
    assert images == {((3, 3, *SIZE), torch.float64)}
    assert measuring_setup(net, 3) == Setup(f'{processor()}, 1 thread', 3, 'float64')
    assert dict(net.stitching_layers) == layers
    assert net.active_stitch is active
    assert all(m.training for m in net.modules())


def test_measure_latency_out_of_memory_names_stitch_and_batch(build_snnet):
    def exhausted(block, args):
        if not args[0].is_meta and net.active_stitch.id == 3:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)

    net = build_snnet(DEPTHS)
    net.anchors[1].blocks[-1].register_forward_pre_hook(exhausted)
    words = "device='cpu' is invalid: .*stitch 3, batches of up to 16: CUDA out of "
    words += r'memory. Tried to allocate 2.00 GiB \(option: --device\)$'
    with pytest.raises(ValueError, match=words):
        measure_latency(net, SIZE, batch=16, rounds=1, check=[1, 3])
    assert net.active_stitch.id == 1  # the slow anchor, as before


def test_measure_memory_without_workspaces_that_stay(build_snnet, monkeypatch):
    net, held = build_snnet(DEPTHS), {}
    for n, anchor in enumerate(net.anchors):
        # The first run of an anchor allocates 1 MB that is never freed.
        anchor.blocks[0].register_forward_pre_hook(
            lambda block, args, n=n: None if args[0].is_meta else held.update({n: 1})
        )
    monkeypatch.setattr(measure, 'check', lambda *args: None)  # here without a GPU
    monkeypatch.setattr(torch.cuda, 'reset_peak_memory_stats', lambda device: None)
    for name in ('memory_allocated', 'max_memory_allocated'):
        monkeypatch.setattr(torch.cuda, name, lambda device: len(held) * 10**6)
    memory, params = measure_memory(net, SIZE), cost_table(net, SIZE).column('params')
    assert held == {0: 1, 1: 1}
    images = 4 * 3 * SIZE[0] * SIZE[1]
    assert memory == {i: 4 * params[i] + images for i in params}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
def test_measure_latency_and_memory_on_gpu(build_snnet):
    """Of blocks so large that the GPU, not the launch of kernels, takes the time."""
    net = build_snnet((4, 8), widths=(512, 1024)).cuda()
    found = measure_latency(net, (256, 256), batch=16)
    assert all(abs(c.error) < 0.2 for c in found.checks), found.checks
    memory = measure_memory(net, (256, 256), batch=16)
    params = cost_table(net, (256, 256)).column('params')
    images = 16 * 4 * 3 * 256 * 256
    assert all(memory[i] > 4 * params[i] + images for i in params)
    assert memory[0] < memory[1]
