from copy import deepcopy
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch.testing import assert_close

from snnet_mm.apis import set_stitch
from snnet_mm.deploy import load_export

CONFIGS = Path(__file__).parents[2] / 'configs'
TOY = 'toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


@pytest.fixture
def toy_cfg():
    """The toy config with anchors of 3 blocks x 8 and 5 blocks x 12 channels."""

    def load(anchor=None, sizes=((8, 3), (12, 5)), **backbone):
        cfg = Config.fromfile(CONFIGS / TOY)
        cfg.test_dataloader.dataset.num_scenes = 4
        anchors = cfg.model.backbone.anchors
        anchors += [deepcopy(anchors[0]) for _ in sizes[len(anchors) :]]
        for config, (width, depth) in zip(anchors, sizes, strict=True):
            config.arch = dict(embed_dims=width, depth=depth, num_heads=2)
            config.update(anchor or {})
        cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=2)
        cfg.model.backbone.update(backbone)
        if cfg.model.backbone.type == 'SNNetv1':
            cfg.model.backbone.pop('stitching_layer')
        cfg.model.decode_head.update(in_channels=sizes[-1][0], channels=8)
        return cfg

    return load


@pytest.fixture
def build(randomise):
    """Builds the model of a config with weights and statistics that all matter."""

    def build(cfg):
        init_default_scope(cfg.default_scope)
        model = randomise(MODELS.build(cfg.model)).eval()
        for name, buffer in model.named_buffers():
            if name.endswith('running_mean'):
                torch.nn.init.normal_(buffer)
            if name.endswith('running_var'):
                torch.nn.init.uniform_(buffer, 0.5, 2)
        return model

    return build


@pytest.fixture
def logits():
    """What a segmentor says of normalised images."""

    @torch.no_grad()
    def logits(model, images):
        return model.encode_decode(images, [dict(img_shape=images.shape[2:])])

    return logits


@pytest.fixture
def compare_graphs():
    """Exports a stitch as graphs and compares them on images that they normalise."""

    @torch.no_grad()
    def compare(exporter, stitch_id, formats, predict):
        model = exporter.model
        manifest = exporter.export_stitch(stitch_id, formats)
        set_stitch(model, stitch_id)
        for number in (1, 3):
            images = 255 * torch.rand(number, 3, *exporter.size)
            mean, std = model.data_preprocessor.mean, model.data_preprocessor.std
            wanted = predict(model, (images - mean) / std)
            for file in manifest['stitches'][0]['files']:
                got = load_export(exporter.out_dir / file['name'])(images)
                assert_close(got, wanted, rtol=1e-4, atol=1e-4)
        return manifest

    return compare
