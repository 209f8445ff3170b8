"""mmcv's operators on torchvision's: by hand, and beside compiled ones."""

import sys
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from mmcv import ops
from torch.testing import assert_close

from snnet_mm.utils import torchvision_ops

pytestmark = pytest.mark.ops
IS_COMPILED = import_module('mmcv._ext') is not torchvision_ops
compiled = pytest.mark.skipif(not IS_COMPILED, reason='needs compiled ops: make ops')


@pytest.fixture
def on_torchvision(monkeypatch):
    """Calls a function with our operators in the place of compiled ones."""
    modules = [m for name, m in sys.modules.items() if name.startswith('mmcv.ops.')]

    def call(run, *args, **kwargs):
        with monkeypatch.context() as patch:
            for module in modules:
                if hasattr(module, 'ext_module'):
                    patch.setattr(module, 'ext_module', torchvision_ops)
            return run(*args, **kwargs)

    return call


def with_gradients(run, *tensors):
    """The result of a function, and the gradients of all tensors."""
    tensors = [t.clone().requires_grad_() for t in tensors]
    result = run(*tensors)
    grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    return result.detach(), *torch.autograd.grad(result, tensors, grad)


def random_boxes():
    corners = 80 * torch.rand(200, 2)
    return torch.cat([corners, corners + 2 + 40 * torch.rand(200, 2)], dim=1)


def test_boxes_that_touch_overlap_where_pixels_have_a_width(on_torchvision):
    boxes = torch.tensor([[1.0, 0, 2, 1], [0, 0, 1, 1]])
    scores = torch.tensor([0.2, 0.9])
    for threshold, offset, wanted in (
        (0.3, 0, [1, 0]),
        (0.3, 1, [1]),
        (0.4, 1, [1, 0]),
    ):
        dets, kept = on_torchvision(ops.nms, boxes, scores, threshold, offset)
        assert kept.tolist() == wanted
        assert_close(dets, torch.cat([boxes, scores[:, None]], 1)[kept])
    # As AMP gives them.
    assert on_torchvision(ops.nms, boxes, scores.half(), 0.3)[1].tolist() == [1, 0]


@pytest.mark.parametrize(('aligned', 'first'), [(True, 2.5), (False, 3)])
def test_regions_of_a_slope_have_the_values_at_centres(on_torchvision, aligned, first):
    slope = torch.arange(16.0).expand(1, 1, 16, 16)
    rois = torch.tensor([[0.0, 4, 4, 12, 12]])

    def pool(maps, mode='avg'):
        return ops.roi_align(maps, rois, 2, 0.5, 2, mode, aligned)

    pooled, grad = on_torchvision(with_gradients, pool, slope)
    assert pooled[0, 0].tolist() == [[first, first + 2]] * 2
    wanted = torch.randn(4, generator=torch.Generator().manual_seed(1)).sum()
    assert_close(grad.sum(), wanted)  # each sample is an average
    with pytest.raises(NotImplementedError, match="roi_align with pool_mode='max'"):
        on_torchvision(pool, slope, 'max')


@pytest.mark.parametrize('modulated', [False, True])
def test_deformable_convolutions_of_shifted_maps(on_torchvision, modulated):
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3)
    one_further = torch.tensor([0.0, 1]).repeat(9)
    offset, mask = (
        one_further.view(1, 18, 1, 1).repeat(2, 1, 5, 4),
        torch.ones(2, 9, 5, 4),
    )

    def deformable(x, weight):
        if modulated:
            bias = torch.ones(6)
            return ops.modulated_deform_conv2d(x, offset, mask / 2, weight, bias, 2, 1)
        return ops.deform_conv2d(x, offset, weight, 2, 1)

    def plain(x, weight):
        out = F.conv2d(F.pad(x, (0, 2, 1, 1)), weight, stride=2)
        return out / 2 + 1 if modulated else out

    found = on_torchvision(with_gradients, deformable, x, weight)
    assert_close(found, with_gradients(plain, x, weight), rtol=1e-4, atol=1e-5)


def test_other_operators_are_named(on_torchvision):
    with pytest.raises(NotImplementedError, match="mmcv's nms_match needs.*make ops"):
        on_torchvision(ops.nms_match, torch.rand(3, 5), 0.5)


@compiled
@pytest.mark.parametrize('offset', [0, 1])
def test_boxes_are_kept_as_by_the_compiled_operators(on_torchvision, offset):
    """Also where scores are equal, and where classes are split."""
    boxes, scores = random_boxes(), torch.rand(200).round(decimals=1)
    calls = [(ops.nms, scores, t, offset, 0.2, 50) for t in (0.1, 0.5, 0.9)]
    for split_thr in (10000, 100):
        settings = dict(type='nms', iou_threshold=0.5, split_thr=split_thr)
        args = torch.rand(200), torch.arange(200) % 3, settings
        calls.append((ops.batched_nms, *args))
    for run, *args in calls:
        wanted = run(boxes, *args)
        assert 10 < len(wanted[1]) < 200 + (run is ops.batched_nms)
        assert_close(on_torchvision(run, boxes, *args), wanted)


def regions(aligned, ratio):
    rois = F.pad(random_boxes(), (1, 0))
    rois[::2, 0] = 1
    settings = (7, 5), 0.25, ratio, 'avg', aligned
    maps = torch.randn(2, 8, 25, 30)
    return lambda maps: ops.roi_align(maps, rois, *settings), maps


def convolutions(bias, groups, offset_groups):
    """Deformable ones: without masks, with a bias, or without one."""
    points, size = 6 * offset_groups, (5, 5)
    geometry = (2, 1), (1, 0), (1, 2), groups, offset_groups
    tensors = [torch.randn(2, 8, 9, 7), torch.randn(2, 2 * points, *size)]
    weight = torch.randn(12, 8 // groups, 3, 2)
    if bias is None:
        return lambda *x: ops.deform_conv2d(*x, *geometry), *tensors, weight
    tensors += [torch.rand(2, points, *size), weight]
    tensors, none = (tensors + [torch.randn(12)], ()) if bias else (tensors, (None,))
    run = ops.modulated_deform_conv2d
    return lambda *x: run(*x, *none, *geometry), *tensors


@compiled
@pytest.mark.parametrize(('aligned', 'groups'), [(False, (1, 1)), (True, (2, 4))])
def test_gradients_are_the_compiled_ones(on_torchvision, aligned, groups):
    cases = [regions(aligned, ratio) for ratio in (0, 2)]
    cases += [convolutions(bias, *groups) for bias in (None, True, False)]
    for case in cases:
        wanted = with_gradients(*case)
        found = on_torchvision(with_gradients, *case)
        assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@compiled
def test_compiled_operators_stay():
    before = sys.modules['mmcv._ext']
    torchvision_ops.install()
    assert sys.modules['mmcv._ext'] is before
