import statistics
import time

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
LAYERS = dict(stitching_layer=dict(type='StitchingLayer'))
# Milliseconds that every part takes on the clock of these tests, fast to slow.
EMBED, BLOCK, LAYER, MAP, HEADS = (1, 2, 4), (3, 10, 30), 0.5, 0.25, (20, 50)


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
    """A backbone, and a head for each end anchor if it returns states."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        widths = [anchor.block_dims[-1] for anchor in backbone.anchors]
        self.heads = nn.ModuleList(nn.Linear(width, 2) for width in widths)

    def forward(self, images):
        x, end = self.backbone(images), self.backbone.active_stitch.end_anchor
        if self.backbone.out == 'end':
            return self.heads[end](x.tokens)
        return self.heads[-1](x[-1].movedim(1, -1))


def set_times(clock, model):
    for a, anchor in enumerate(model.backbone.anchors):
        clock.takes(anchor.patch_embed, EMBED[a])
        for i, block in enumerate(anchor.blocks):
            # Blocks differ, as window and global attention do.
            clock.takes(block, BLOCK[a] + i)
    for layer in model.backbone.stitching_layers.values():
        clock.takes(layer, LAYER)
    for head, milliseconds in zip(model.heads[-2:], HEADS, strict=True):
        clock.takes(head, milliseconds)
    to_feature_map = anchor.to_feature_map

    def timed_map(state):
        clock.now += MAP / 1e3
        return to_feature_map(state)

    anchor.to_feature_map = timed_map


def latency_by_hand(stitch, maps, depths=DEPTHS):
    run = {(a, i) for a, begin, end in stitch.segments for i in range(begin, end)}
    layers, slowest = set(stitch.layers), len(depths) - 1
    for i in maps:
        a = slowest
        while (a, i) not in run:
            a, i = a - 1, i * depths[a - 1] // depths[a]
        layers |= {f'{a}to{slowest}_{i}'} if a < slowest else set()
    blocks = sum(BLOCK[a] + i for a, i in run)
    parts = EMBED[stitch.segments[0].anchor] + blocks + LAYER * len(layers)
    return parts + MAP * len(maps) + HEADS[-1 if maps else stitch.end_anchor]


@pytest.mark.parametrize(
    ('depths', 'settings', 'maps', 'period'),
    [
        (DEPTHS, dict(out_indices=(6,)), (6,), None),
        ((2, 3, 7), dict(out_indices=(0, 3, 6)), (0, 3, 6), None),
        (DEPTHS, dict(out='end'), (), None),
        # Each part is interrupted in few rounds, but most rounds of a long route are.
        (DEPTHS, dict(out='end'), (), 7),
    ],
)
def test_latency_in_closed_form(build_snnet, clock, depths, settings, maps, period):
    widths = (8, 12, 16)[: len(depths)]
    model = Model(build_snnet(depths, widths, **LAYERS, **settings))
    set_times(clock, model)
    clock.period = period
    found = measure_latency(model, SIZE, rounds=20 if period else 3)
    for stitch in model.backbone.space:
        expected = latency_by_hand(stitch, maps, depths)
        assert found.by_stitch[stitch.id] == pytest.approx(expected), stitch


def test_the_model_is_run_as_shipped_on_what_was_asked_for(build_snnet, monkeypatch):
    net = build_snnet(DEPTHS).double().train()
    seen, forward = [], StitchingLayer.forward

    def seeing(self, x):
        seen.append((type(self), tuple(x.shape), x.dtype))
        return forward(self, x)

    monkeypatch.setattr(StitchingLayer, 'forward', seeing)
    layers, active = dict(net.stitching_layers), net.active_stitch
    measure_latency(net, SIZE, batch=3, rounds=1)
    kinds, shapes, dtypes = zip(*seen, strict=True)
    assert {*kinds} == {StitchingLayer}  # merged
    assert {shape[0] for shape in shapes} == {1, 3}  # counted, then timed
    assert {*dtypes} == {torch.float64}
    assert measuring_setup(net, 3) == Setup(f'{processor()}, 1 thread', 3, 'float64')
    assert dict(net.stitching_layers) == layers
    assert net.active_stitch is active
    assert all(m.training for m in net.modules())


def test_workspaces_that_stay_do_not_count_for_a_stitch(build_snnet, monkeypatch):
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
@torch.no_grad()
def test_on_a_gpu(build_snnet):
    """Of blocks so large that the GPU, not the launch of kernels, takes the time."""
    net = build_snnet((4, 8), widths=(512, 1024)).cuda().eval()
    found = measure_latency(net, (256, 256), batch=16).by_stitch
    images, timed = torch.randn(16, 3, 256, 256, device='cuda'), []
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        net(images)  # the slow anchor
        torch.cuda.synchronize()
        timed.append(1e3 * (time.perf_counter() - start))
    assert found[1] == pytest.approx(statistics.median(timed), rel=0.2)
    memory = measure_memory(net, (256, 256), batch=16)
    params = cost_table(net, (256, 256)).column('params')
    assert all(memory[i] > 4 * params[i] + 4 * images.numel() for i in params)
    assert memory[0] < memory[1]
