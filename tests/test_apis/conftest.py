import copy

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

CLASSES = ('sky', 'road', 'car')
PALETTE = [[10, 20, 30], [200, 0, 0], [0, 0, 200]]


@pytest.fixture(scope='session')
def seg_cfg():
    """A small stitched segmentor of 14 stitches, for images of 48x32 pixels."""
    pytest.importorskip('mmseg')
    anchor = dict(type='PlainViT', img_size=(32, 48), patch_size=8)
    arch = dict(depth=4, num_heads=2)
    backbone = dict(
        type='SNNetv2',
        anchors=[dict(arch=dict(embed_dims=d, **arch), **anchor) for d in (8, 12)],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=2),
    )
    head = dict(
        type='SETRUPHead',
        in_channels=12,
        channels=8,
        in_index=-1,
        num_classes=len(CLASSES),
        norm_cfg=dict(type='SyncBN'),
        num_convs=1,
        up_scale=4,
        kernel_size=1,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True),
    )
    preprocessor = dict(
        type='SegDataPreProcessor',
        mean=[100.0, 110.0, 120.0],
        std=[50.0, 51.0, 52.0],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(32, 48),
    )
    model = dict(
        type='EncoderDecoder',
        data_preprocessor=preprocessor,
        backbone=backbone,
        decode_head=head,
        test_cfg=dict(mode='whole'),
    )
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='Resize', scale=(48, 32), keep_ratio=False),
        dict(type='LoadAnnotations'),
        dict(type='PackSegInputs'),
    ]
    metainfo = dict(classes=CLASSES, palette=PALETTE)
    dataset = dict(type='BaseSegDataset', metainfo=metainfo, pipeline=pipeline)
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
