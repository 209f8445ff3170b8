"""Exported stitches in the inference calls of mmseg, mmdet and mmpretrain."""

from copy import deepcopy
from pathlib import Path

import cv2
import numpy as np
import pytest
from package_calls import infer, infer_ours, predicted
from torch.testing import assert_close

from snnet_mm.exports import StitchExporter
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch

CONFIGS = Path(__file__).parents[2] / 'configs'
SCENES = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
SEGMENTOR = 'camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py'
DEPTH = 'dpt/hololens/dpt_snnetv2-fast-slow_1xb8-200_hololens-240x160.py'
DETECTOR = 'vitdet/nuclei/mask-rcnn_snnetv2-fast-slow_1xb2-500_nuclei-256x256.py'
CLASSIFIER = 'imagenet/tiny/snnetv2-ti-b_1xb64-600_tinyimagenet20-64x64.py'


CASES = {
    'segmentor': (SEGMENTOR, 'mmseg'),
    'generated': (SCENES, 'mmseg'),
    'depth': (DEPTH, 'mmseg'),
    'detector': (DETECTOR, 'mmdet'),
    'classifier': (CLASSIFIER, 'mmpretrain'),
}


@pytest.mark.parametrize('case', CASES)
def test_files_and_arrays_are_predicted_as_by_the_stitched_model(case, tmp_path):
    config, package = CASES[case]
    options = {}
    if case == 'detector':
        pytest.importorskip('mmdet')
        options = {'model.test_cfg.rcnn.score_thr': 0.0}
        options['model.test_cfg.rpn.max_per_img'] = 20
    model = init_model(CONFIGS / config, None, device='cpu', cfg_options=options)
    StitchExporter(model.cfg, model, tmp_path, (64, 64)).export_stitch(3)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    set_stitch(model, 3)
    before = deepcopy(model.cfg).to_dict()
    wanted = predicted(infer_ours(model, image))
    files = [str(tmp_path / name) for name in ('stitch_3.py', 'stitch_3.pth', 'a.png')]
    assert model.cfg.to_dict() == before
    for given in (files.pop(), image):
        found = predicted(infer(package, *files, given))
        assert_close(found, wanted, rtol=1e-5, atol=1e-5)
