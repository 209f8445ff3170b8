import copy

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from tiny import tiny_config
from toy import small_toy

METAINFO = dict(
    classes=('sky', 'road', 'car'), palette=[[10, 20, 30], [200, 0, 0], [0, 0, 200]]
)


@pytest.fixture
def det_cfg(tmp_path):
    """The stitched toy detector with random weights, and few small steps."""
    cfg = small_toy('det', tmp_path / 'work')
    # Random boxes hardly meet an object: anything that is found counts.
    cfg.model.test_cfg.rcnn.update(score_thr=0)
    cfg.test_evaluator.update(metric_items=['mAP', 'mAP_50'], iou_thrs=[0.02, 0.5])
    return cfg


@pytest.fixture
def build_detector():
    """Builds the model of a config with weights that all matter."""

    def build(cfg):
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

    return build


@pytest.fixture
def detector(det_cfg, build_detector):
    model = build_detector(det_cfg)
    model.cfg = det_cfg
    model.dataset_meta = dict(classes=('object',), palette=None)
    return model


@pytest.fixture
def make_runner(det_cfg, build_detector):
    """Makes runners of the same model."""

    def make(loop='StitchTestLoop', **test_cfg):
        state, cfg = build_detector(det_cfg).state_dict(), copy.deepcopy(det_cfg)
        if loop == 'StitchTestLoop':
            test_cfg = dict(stitches=[0, 4, 12, 1]) | test_cfg
        cfg.test_cfg = dict(type=loop, **test_cfg)
        runner = Runner.from_cfg(cfg)
        runner.model.load_state_dict(state)
        return runner

    return make


@pytest.fixture(scope='session')
def seg_cfg():
    """A small stitched segmentor of 14 stitches, for images of 48x32 pixels."""
    pytest.importorskip('mmseg')
    model = tiny_config().model
    for anchor in model.backbone.anchors:
        anchor.img_size = (32, 48)
        anchor.arch.depth = 4
    model.data_preprocessor.update(mean=[100.0, 110.0, 120.0], std=[50.0, 51.0, 52.0])
    model.data_preprocessor.size = (32, 48)
    model.decode_head.num_classes = len(METAINFO['classes'])
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=(48, 32), keep_ratio=False),
        dict(type='LoadAnnotations'),
        dict(type='PackSegInputs'),
    ]
    dataset = dict(type='BaseSegDataset', metainfo=METAINFO, pipeline=pipeline)
    return Config(
        dict(
            default_scope='mmseg',
            model=model,
            test_dataloader=dict(dataset=dataset),
            visualizer=dict(type='SegLocalVisualizer', name='visualizer'),
        )
    )


@pytest.fixture
def cfg(seg_cfg):
    return copy.deepcopy(seg_cfg)


@pytest.fixture(scope='session')
def checkpoint(seg_cfg, tmp_path_factory):
    """Random weights of that segmentor, so large that every part of it shows."""
    init_default_scope('mmseg')
    torch.manual_seed(0)
    model = MODELS.build(seg_cfg.model)
    with torch.no_grad():
        for parameter in model.backbone.parameters():
            parameter.normal_(std=0.3)
        model.decode_head.conv_seg.weight.normal_()
    path = tmp_path_factory.mktemp('weights') / 'seg.pth'
    torch.save(dict(state_dict=model.state_dict()), path)
    return path


@pytest.fixture(scope='session')
def images(tmp_path_factory):
    """A folder with three images and a text file."""
    folder = tmp_path_factory.mktemp('images')
    random = np.random.default_rng(0)
    for name in 'abc':
        image = random.integers(0, 256, (40, 60, 3), np.uint8)
        cv2.imwrite(str(folder / f'{name}.png'), image)
    (folder / 'notes.txt').write_text('no image')
    return folder
