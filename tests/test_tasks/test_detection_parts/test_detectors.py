"""Inference, export and batch norm of detectors."""

import cv2
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from snnet_mm.inference.init_inferencer import draw_prediction, init_inferencer
from snnet_mm.models import set_stitch

pytestmark = pytest.mark.ops
DetDataSample = pytest.importorskip('mmdet.structures').DetDataSample


@torch.no_grad()
def detections(detector, image):
    """Boxes and scores of an image (64, 64, 3), without mmdet's pipeline."""
    rgb = np.ascontiguousarray(image[..., ::-1]).astype(np.float32)
    x = torch.from_numpy((rgb - 127.5) / 127.5).permute(2, 0, 1)[None]
    sizes = dict(img_shape=(64, 64), ori_shape=(64, 64), scale_factor=(1.0, 1.0))
    return detector.predict(x, [DetDataSample(metainfo=sizes)])[0].pred_instances


def test_inference_and_drawing_of_each_stitch(detector, tmp_path):
    resize = dict(type='Resize', scale=(64, 64), keep_ratio=True)
    data = detector.cfg.test_dataloader.dataset
    data.pipeline = [dict(type='LoadImageFromFile'), resize, *data.pipeline]
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    inferencer = init_inferencer(detector)
    assert inferencer.model is detector
    seen, drawn = [], []
    for stitch in (0, 12):
        set_stitch(detector, stitch)
        wanted = detections(detector, image)
        for given in (tmp_path / 'a.png', image):
            (found,) = inferencer(given)['predictions']
            assert_close(torch.tensor(found['scores']), wanted.scores)
            assert_close(torch.tensor(found['bboxes']), wanted.bboxes)
            assert len(found['masks']) == len(wanted)
        seen.append(wanted.scores)
        drawn.append(draw_prediction(inferencer, image))
    assert not torch.equal(*seen)
    assert not np.array_equal(*drawn)
    # Without names their black ground goes; boxes and masks stay.
    unnamed = draw_prediction(init_inferencer(detector), image, with_labels=False)
    assert (drawn[-1] < 40).all(-1).sum() > (unnamed < 40).all(-1).sum()
    assert (unnamed != image).any()
    # Nothing is drawn on an image without detections; its channels keep their order.
    plain = np.full((64, 64, 3), (10, 60, 200), np.uint8)
    assert np.array_equal(draw_prediction(inferencer, plain, score_thr=1.1), plain)
