import copy

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from running_here import run_here  # noqa: F401
from small import small

from snnet_mm.costs import cost_table


@pytest.fixture
def det_cfg(tmp_path):
    """Config of the stitched toy detector: no pretrained weights, few small steps."""
    cfg = small('det', tmp_path / 'work')
    # Random boxes rarely overlap an object: accept any score and small overlaps.
    cfg.model.test_cfg.rcnn.update(score_thr=0)
    cfg.test_evaluator.update(metric_items=['mAP', 'mAP_50'], iou_thrs=[0.02, 0.5])
    return cfg


def build_detector(cfg):
    """Build the model of a config; all its weights affect the output."""
    init_default_scope('mmdet')
    torch.manual_seed(0)
    model = MODELS.build(cfg.model).eval()
    model.init_weights()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith('backbone') and parameter.dim() > 1:
                parameter.normal_(std=0.2)
        model.roi_head.bbox_head.fc_cls.weight.normal_()
    return model


@pytest.fixture
def detector(det_cfg):
    model = build_detector(det_cfg)
    model.cfg = det_cfg
    model.dataset_meta = dict(classes=('object',), palette=None)
    return model


COSTS = {}  # of the detector, by the size of images: counting takes seconds


def count_once(model, size):
    if size not in COSTS:
        COSTS[size] = cost_table(model, size)
    return COSTS[size]


@pytest.fixture
def make_runner(det_cfg, monkeypatch):
    """Builds runners whose models have the same weights, and costs."""
    monkeypatch.setattr('snnet_mm.evaluation.loops.cost_table', count_once)

    def make(loop='StitchTestLoop', **test_cfg):
        state, cfg = build_detector(det_cfg).state_dict(), copy.deepcopy(det_cfg)
        if loop == 'StitchTestLoop':
            test_cfg = dict(stitches=[0, 4, 12, 1]) | test_cfg
        cfg.test_cfg = dict(type=loop, **test_cfg)
        runner = Runner.from_cfg(cfg)
        runner.model.load_state_dict(state)
        return runner

    return make
