"""Parts of mmdet that are replaced in graphs of detectors."""

import pytest
import torch
import torch.nn.functional as F
from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
from mmengine.registry import MODELS, init_default_scope

from snnet_mm.tasks.detector_graphs import fault_of, pool, predict_one

pytestmark = pytest.mark.ops


@pytest.mark.parametrize('ratio', [0, 2])
def test_pool_equals_mmdet(ratio):
    """From the map of their size alone, however many points of it are read."""
    torch.manual_seed(0)
    maps = tuple(torch.randn(1, 4, side, side) for side in (64, 32, 16, 8))
    boxes = [[4, 4, 40, 40], [10, 10, 200, 220], [0, 0, 120, 100]]
    boxes = torch.tensor(boxes, dtype=torch.float32)
    layer = dict(type='RoIAlign', output_size=7, sampling_ratio=ratio)
    extractor = SingleRoIExtractor(layer, 4, [4, 8, 16, 32])
    rois = F.pad(boxes, (1, 0))
    torch.testing.assert_close(pool(extractor, maps, rois), extractor(maps, rois))


@pytest.mark.parametrize(
    ('changed', 'why'),
    [
        (dict(roi_head=dict(bbox_head=dict(bbox_coder=dict(clip_border=False)))), 'it'),
        (dict(test_cfg=dict(rcnn=dict(mask_thr_binary=-1))), 'it'),  # soft masks
        (dict(test_cfg=dict(rcnn=dict(max_per_img=-1))), 'it'),
        (dict(data_preprocessor=dict(mean=[0, 0, 0])), 'pixels may look like'),
        ({}, None),
    ],
)
def test_fault_of_detectors_that_choose_otherwise(det_cfg, changed, why):
    init_default_scope('mmdet')
    det_cfg.merge_from_dict(dict(model=changed))
    fault = fault_of(MODELS.build(det_cfg.model))
    assert fault is why or fault.startswith(f'StandardRoIHead: {why}')


@torch.no_grad()
def test_predict_one_takes_nearly_zero_pixels_as_padding(detector):
    """Runtimes that normalise by one multiplication and addition leave them so."""
    image = 2 * torch.rand(1, 3, 64, 64) + 0.1
    image[..., 40:, :] = image[..., 50:] = 0
    wanted = predict_one(detector, image)
    found = predict_one(detector, torch.where(image == 0, 3e-7, image))
    for got, same in zip(found, wanted, strict=True):
        assert torch.equal(got, same)
    boxes, number = wanted[0], (wanted[1] >= 0).sum()
    assert (boxes[:number] <= torch.tensor([50, 40, 50, 40])).all()
    assert boxes[:number, 3].max() == 40  # clipped
