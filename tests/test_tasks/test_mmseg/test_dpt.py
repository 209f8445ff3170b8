"""DPT's depth head, the estimator around it, its loss and its data."""

import math

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.config import ConfigDict
from mmengine.logging import MessageHub
from mmengine.registry import init_default_scope
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from snnet_mm.models import set_stitch
from snnet_mm.tasks.mmseg import LoadDepthMap, ScaleInvariantLogLoss

SIZE = (64, 96)
HEAD = dict(
    type='DPTDepthHead', in_channels=12, channels=8, post_process_channels=(4, 6, 8, 10)
)
ARCHS = (dict(embed_dims=w, depth=d, num_heads=2) for w, d in ((8, 4), (12, 8)))
BACKBONE = dict(
    type='SNNetv2',
    anchors=[dict(type='PlainViT', arch=arch, img_size=64) for arch in ARCHS],
    stitching_layer=dict(type='LoRAStitchingLayer', rank=2),
    out_indices=(1, 3, 5, 7),
    with_cls=True,
)


def build(test_cfg=None, padding=0, **head):
    """Build a depth model on a stitched backbone of widths 8 and 12."""
    init_default_scope('mmseg')
    return MODELS.build(
        dict(
            type='DPTDepthEstimator',
            data_preprocessor=dict(type='SegDataPreProcessor', seg_pad_val=padding),
            backbone=BACKBONE,
            decode_head=HEAD | head,
            test_cfg=ConfigDict(test_cfg or dict(mode='whole')),
        )
    )


def sample(depth):
    """A data sample of a depth map (1, H, W)."""
    size = dict.fromkeys(('img_shape', 'ori_shape'), tuple(depth.shape[-2:]))
    return SegDataSample(gt_depth_map=PixelData(data=depth), metainfo=size)


@torch.no_grad()
def predict(model, images):
    """Depths of images (B, 3, H, W)."""
    samples = model(images, [sample(i[:1]) for i in images], mode='predict')
    return torch.stack([s.pred_depth_map.data for s in samples])


def depth_by_hand(head, features):
    """Depths of what mmseg's head reads its output from."""
    first, _, second, _, last = head.conv_depth
    x = F.conv2d(features, first.weight, first.bias, padding=1)
    x = F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True)
    x = F.conv2d(x, second.weight, second.bias, padding=1).relu()
    x = F.conv2d(x, last.weight, last.bias)
    if head.activation == 'relu':
        return head.min_depth + x.relu()
    return head.min_depth + (head.max_depth - head.min_depth) / (1 + (-x).exp())


@torch.no_grad()
@pytest.mark.parametrize(
    'readout, activation', [('ignore', 'sigmoid'), ('project', 'relu')]
)
def test_dpt_depth_head_reads_features_of_mmseg(randomise, readout, activation):
    kwargs = dict(readout_type=readout, activation=activation)
    model = randomise(build(min_depth=0.5, max_depth=3, **kwargs)).eval()
    images, features = torch.randn(2, 3, *SIZE), []
    model.decode_head.project.register_forward_hook(
        lambda *args: features.append(args[2])
    )
    for stitch_id in (0, 1, 7):
        set_stitch(model, stitch_id)
        depth = model(images)
        assert depth.shape == (2, 1, *SIZE)
        expected = depth_by_hand(model.decode_head, features.pop())
        torch.testing.assert_close(depth, expected)
        assert depth.std() > 0.01
    if readout == 'ignore':
        model.backbone.with_cls = False
        assert model(images).equal(depth)


def test_dpt_depth_estimator_loss_is_at_full_size():
    model, images = build(), torch.randn(2, 3, 64, 90)
    truth = torch.rand(2, 1, 64, 90) * 5
    losses = model(images, [sample(t) for t in truth], mode='loss')
    depth = F.interpolate(model(images), (64, 90), mode='bilinear')
    expected = model.decode_head.loss_decode(depth, truth)
    torch.testing.assert_close(losses, {'decode.loss_depth': expected})
    losses['decode.loss_depth'].backward()
    assert all(p.grad.any() for p in model.decode_head.parameters())


def test_dpt_depth_estimator_padding_with_depth_is_refused():
    with pytest.raises(ValueError, match='seg_pad_val=255 is invalid'):
        build(padding=255)


@torch.no_grad()
def test_dpt_depth_estimator_averages_windows_and_mirror_images(randomise):
    crops = dict(mode='slide', crop_size=(32, 64), stride=(32, 32))
    model = randomise(build(crops)).eval()
    images = torch.randn(2, 3, 64, 96)
    total, count = torch.zeros(2, 1, 64, 96), torch.zeros(64, 96)
    for y in (0, 32):
        for x in (0, 32):
            window = (..., slice(y, y + 32), slice(x, x + 64))
            total[window] += model(images[window])
            count[window[1:]] += 1
    slid, mirrored = predict(model, images), predict(model, images.flip(3))
    torch.testing.assert_close(slid, total / count)
    model.test_cfg['flip'] = True
    both = predict(model, images)
    torch.testing.assert_close(both, (slid + mirrored.flip(3)) / 2)
    model.test_cfg['mode'] = 'whole'
    assert (predict(model, images) - both).abs().max() > 1e-3
    assert (both - slid).abs().max() > 1e-3


@pytest.mark.parametrize('iteration, warm', [(None, False), (99, True), (100, False)])
def test_scale_invariant_log_loss_learns_scale_first(monkeypatch, iteration, warm):
    running = MessageHub.get_current_instance().runtime_info
    monkeypatch.setitem(running, 'iter', iteration)
    truth = torch.linspace(0.5, 3, 4, dtype=torch.float64)
    # Logarithms differ by these values.
    pred = (truth + 1e-3) * torch.tensor([0.1, 0.3, -0.2, 0.6]).exp() - 1e-3
    loss = ScaleInvariantLogLoss(warm_up_iters=100, loss_weight=2)(pred, truth)
    mean, var = 0.2, (0.01 + 0.01 + 0.16 + 0.16) / 3
    square = 0.15 * mean**2 + (0 if warm else var)
    assert loss.item() == pytest.approx(2 * math.sqrt(square), rel=1e-5)
    # Half precision cannot hold the squares.
    in_half = ScaleInvariantLogLoss(100, loss_weight=2)(pred.half(), truth.half())
    assert in_half.dtype == torch.float32
    assert in_half.item() == pytest.approx(loss.item(), rel=2e-2)


@pytest.mark.parametrize(
    'pred, truth, expected',
    [
        ([2.0, 3.0], [2.0, 3.0], 1e-6),  # perfect
        ([2.0, 3.0], [0.0, 0.0], 0),  # no truth
        ([2.0, 3.0], [2.0, 0.0], 1e-6),  # a single pixel
        ([0.0, 0.0], [1.0, 1.0], None),  # far off
    ],
)
def test_scale_invariant_log_loss_gradients_are_finite(pred, truth, expected):
    pred = torch.tensor(pred, requires_grad=True)
    loss = ScaleInvariantLogLoss()(pred, torch.tensor(truth))
    loss.backward()
    assert pred.grad.isfinite().all()
    assert (pred.grad < 0).all() if expected is None else pred.grad.eq(0).all()
    assert loss > 1 if expected is None else loss.item() == pytest.approx(expected)


def test_load_depth_map_reads_metres_of_millimetres(tmp_path):
    path = tmp_path / 'room.png'
    cv2.imwrite(str(path), np.array([[0, 1500], [250, 65535]], np.uint16))
    results = dict(depth_map_path=str(path), ori_shape=(2, 2), seg_fields=[])
    depth = LoadDepthMap()(results)['gt_depth_map']
    np.testing.assert_allclose(depth, [[0, 1.5], [0.25, 65.535]], rtol=1e-6)
    assert depth.dtype == np.float32
    assert results['seg_fields'] == ['gt_depth_map']
