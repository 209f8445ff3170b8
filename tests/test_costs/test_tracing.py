"""Forwards on tensors of unknown content."""

import sys
from copy import deepcopy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.costs.tracing import is_unknown, tracing, unknown

sampled = partial(F.grid_sample, align_corners=False)
X = unknown((3, 4), torch.float32)
CHOICES = dict(
    mask=(lambda: X[X > 2], (12,)),
    rows=(lambda: X[X[:, 0] > 2], (3, 4)),
    one_column=(lambda: X[:, X[0] > 2, None], (3, 4, 1)),
    known_mask=(lambda: X[torch.tensor([True, False, True])], (2, 4)),
    places=(lambda: (X > 2).nonzero(), (12, 2)),
    selected=(lambda: X.masked_select(X[0] > 2), (12,)),
    unique=(lambda: torch.unique(X), (1,)),
    counts=(lambda: torch.unique(X, return_counts=True)[1], (1,)),
    copied=(lambda: deepcopy(X).mul_(2), (3, 4)),
    sampled=(lambda: sampled(X[None, None], X[None, :, None, :2]), (1, 1, 3, 1)),
    written=(lambda: torch.zeros_like(X).index_put_((X > 2,), X[0, 0]), (3, 4)),
    added=(lambda: X.new_zeros(5, 3, 4).add_(X), (5, 3, 4)),
)


@pytest.mark.parametrize('name', CHOICES)
def test_content_chooses_the_most(name):
    run, shape = CHOICES[name]
    with tracing():
        found = run()
        assert found.shape == shape
        assert is_unknown(found)


def test_known_content_stays_known():
    levels = torch.tensor([[4, 5], [2, 3]])
    with tracing():
        sizes = levels.prod(1).tolist()
        parts = unknown((26, 8), torch.float32).split(sizes)
        both = torch.arange(3) * X[:, 0]
        assert not is_unknown(torch.arange(3) * 2)
    assert [len(part) for part in parts] == [20, 6]
    assert is_unknown(both)
    assert is_unknown(both.view(3, 1).squeeze(1).view(1, 3))


def test_values_that_are_read_lead_on():
    with tracing():
        assert (X > 2).any()
        assert ((X > 2).sum() == 0).item() is False
        assert X.mean().item() == 1
        assert int(X.argmax()) == 0
        # What 1 gives is not taken for what 1.0 gives.
        assert (X.argmax(0) + 1).dtype == torch.int64
        assert (X.argmax(0) + 1.0).dtype == torch.float32


def test_what_has_no_shape_without_content_is_not_implemented():
    for run in (lambda x: torch.bincount(x), lambda x: x.repeat_interleave(x)):
        with pytest.raises(NotImplementedError), tracing():
            run(unknown((4,), torch.long))


def test_attention_counts_its_two_products():
    heads = unknown((1, 2, 5, 8), torch.float32)
    encoder = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    encoder.requires_grad_(False)
    with tracing(), FlopCounterMode(display=False) as counter:
        F.scaled_dot_product_attention(heads, heads, heads)
        assert counter.get_total_flops() == 2 * 2 * 2 * 5 * 5 * 8
        encoder(unknown((1, 5, 16), torch.float32))
    layers = 5 * (4 * 16 * 16 + 2 * 16 * 32)
    assert counter.get_total_flops() == 2 * (2 * 2 * (2 * 5 * 5 * 8) + layers)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.ops
def test_operators_of_mmcv_read_no_memory():
    ops = pytest.importorskip('mmcv.ops')
    before = dict(vars(sys.modules['mmcv._ext']))
    maps, boxes = unknown((1, 6, 8, 8), torch.float32), unknown((7, 4), torch.float32)
    conv = ops.ModulatedDeformConv2dPack(6, 4, 3, padding=1, groups=2)
    plain = ops.DeformConv2d(6, 4, 3, padding=1, bias=False)
    with torch.no_grad(), tracing(), FlopCounterMode(display=False) as counter:
        kept, indices = ops.nms(boxes, boxes[:, 0], 0.5)
        assert (kept.shape, indices.shape) == ((7, 5), (7,))
        kept, indices = ops.soft_nms(boxes, boxes[:, 0], 0.5)
        assert (kept.shape, indices.shape) == ((7, 5), (7,))
        rois = unknown((7, 5), torch.float32)
        assert ops.roi_align(maps, rois, 5).shape == (7, 6, 5, 5)
        assert counter.get_total_flops() == 0
        assert conv(maps).shape == (1, 4, 8, 8)
        own, offsets = 64 * 4 * 3 * 9, 64 * 6 * 27 * 9
        assert counter.get_total_flops() == 2 * (own + offsets)
        assert plain(maps, unknown((1, 18, 8, 8), torch.float32)).shape == (1, 4, 8, 8)
        assert counter.get_total_flops() == 2 * (own + offsets + 64 * 4 * 6 * 9)
    assert vars(sys.modules['mmcv._ext']) == before
    same = torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(7, 1)
    assert len(ops.nms(same, torch.ones(7), 0.5)[1]) == 1
