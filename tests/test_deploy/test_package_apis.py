"""Exported stitches in the inference calls of mmseg, mmdet and mmpretrain."""

from copy import deepcopy
from pathlib import Path

import cv2
import mmpretrain.apis
import mmseg.apis
import numpy as np
import pytest
from torch.testing import assert_close

from snnet_mm.apis import init_inferencer, init_model, set_stitch
from snnet_mm.deploy import StitchExporter

CONFIGS = Path(__file__).parents[2] / 'configs'
SCENES = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
SEGMENTOR = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
DEPTH = 'dpt/hololens/dpt_snnetv2-fast-slow_1xb8-200_hololens-240x160.py'
DETECTOR = 'vitdet/nuclei/mask-rcnn_snnetv2-fast-slow_1xb2-500_nuclei-256x256.py'
CLASSIFIER = 'imagenet/tiny/snnetv2-ti-b_1xb64-600_tinyimagenet20-64x64.py'


def infer_mmseg(config, weights, image):
    model = mmseg.apis.init_model(config, weights, device='cpu')
    return mmseg.apis.inference_model(model, image)


def infer_mmdet(config, weights, image):
    from mmdet.apis import inference_detector, init_detector

    model = init_detector(config, weights, device='cpu')
    return inference_detector(model, image)


def infer_mmpretrain(config, weights, image):
    # inference_model takes models of mmpretrain's own list alone.
    infer = mmpretrain.apis.ImageClassificationInferencer(config, weights, 'cpu')
    return infer(image, return_datasamples=True)[0]


CASES = {
    'segmentor': (SEGMENTOR, infer_mmseg, lambda s: s.seg_logits.data),
    'generated': (SCENES, infer_mmseg, lambda s: s.seg_logits.data),
    'depth': (DEPTH, infer_mmseg, lambda s: s.pred_depth_map.data),
    'detector': (DETECTOR, infer_mmdet, lambda s: s.pred_instances.bboxes),
    'classifier': (CLASSIFIER, infer_mmpretrain, lambda s: s.pred_score),
}


@pytest.mark.parametrize('case', CASES)
def test_files_and_arrays_are_predicted_as_by_the_stitched_model(case, tmp_path):
    config, infer, prediction = CASES[case]
    options = {}
    if case == 'detector':
        pytest.importorskip('mmcv._ext')
        options = {'model.test_cfg.rcnn.score_thr': 0.0}
        options['model.test_cfg.rpn.max_per_img'] = 20
    model = init_model(CONFIGS / config, None, device='cpu', cfg_options=options)
    StitchExporter(model.cfg, model, tmp_path, (64, 64)).export_stitch(3)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    set_stitch(model, 3)
    before = deepcopy(model.cfg).to_dict()
    wanted = init_inferencer(model)(image, return_datasamples=True)
    wanted = wanted['predictions'] if isinstance(wanted, dict) else wanted
    wanted = prediction(wanted[0] if isinstance(wanted, list) else wanted)
    files = [str(tmp_path / name) for name in ('stitch_3.py', 'stitch_3.pth', 'a.png')]
    assert len(wanted)
    assert model.cfg.to_dict() == before
    for given in (files.pop(), image):
        found = prediction(infer(*files, given))
        assert_close(found, wanted, rtol=1e-5, atol=1e-5)
