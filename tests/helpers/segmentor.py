"""A small stitched segmentor with random weights."""

import torch
from mmengine.config import Config
from small import build_disturbed, small

METAINFO = dict(
    classes=('sky', 'road', 'car'), palette=[[10, 20, 30], [200, 0, 0], [0, 0, 200]]
)


def segmentor_config():
    """Config of a small segmentor with 14 stitches, for images of 48x32 pixels."""
    model = small('tiny').model
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
    visualizer = dict(type='SegLocalVisualizer', name='visualizer')
    cfg = dict(default_scope='mmseg', model=model, visualizer=visualizer)
    return Config(dict(cfg, test_dataloader=dict(dataset=dataset)))


def write_weights(cfg, path):
    """Write random weights of it, large enough for every part to affect the output."""
    torch.save(dict(state_dict=build_disturbed(cfg).state_dict()), path)
    return path
