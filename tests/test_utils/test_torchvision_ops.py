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


def test_nms_offset_makes_touching_boxes_overlap(on_torchvision):
    """The offset is the width of a pixel."""
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
def test_roi_align_of_a_slope_has_values_at_centres(on_torchvision, aligned, first):
    slope = torch.arange(16.0).expand(1, 1, 16, 16)
    rois = torch.tensor([[0.0, 4, 4, 12, 12]])

    def pool(maps, mode='avg'):
        return ops.roi_align(maps, rois, 2, 0.5, 2, mode, aligned)

    pooled, grad = on_torchvision(with_gradients, pool, slope)
    assert pooled[0, 0].tolist() == [[first, first + 2]] * 2
    wanted = torch.randn(4, generator=torch.Generator().manual_seed(1)).sum()
    assert_close(grad.sum(), wanted)  # each sample is an average
    with pytest.raises(NotImplementedError, match="pool_mode='max'"):
        on_torchvision(pool, slope, 'max')


def test_torchvision_ops_other_operators_are_named(on_torchvision):
    with pytest.raises(NotImplementedError, match='nms_match'):
        on_torchvision(ops.nms_match, torch.rand(3, 5), 0.5)


@compiled
@pytest.mark.parametrize('offset', [0, 1])
def test_nms_equals_the_compiled_one(on_torchvision, offset):
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


@compiled
@pytest.mark.parametrize('aligned', [False, True])
@pytest.mark.parametrize('ratio', [0, 2])
def test_roi_align_equals_the_compiled_one(on_torchvision, aligned, ratio):
    rois = F.pad(random_boxes(), (1, 0))
    rois[::2, 0] = 1
    maps = torch.randn(2, 8, 25, 30)

    def pool(maps):
        return ops.roi_align(maps, rois, (7, 5), 0.25, ratio, 'avg', aligned)

    found = on_torchvision(with_gradients, pool, maps)
    assert_close(found, with_gradients(pool, maps), rtol=1e-4, atol=1e-4)


@compiled
def test_install_keeps_compiled_operators():
    before = sys.modules['mmcv._ext']
    torchvision_ops.install()
    assert sys.modules['mmcv._ext'] is before
