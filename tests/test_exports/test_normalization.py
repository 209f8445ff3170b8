"""Normalisation by test pipelines and data preprocessors, together."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, TRANSFORMS, init_default_scope
from mmengine.structures import BaseDataElement

from snnet_mm.exports.normalization import (
    graph_order,
    normalization,
    normalized,
    split_normalize,
)

MEAN, STD = [123.7, 116.3, 103.5], [58.4, 57.1, 57.4]
LOAD, PACK = dict(type='LoadImageFromFile'), dict(type='PackSegInputs')
CROP = dict(type='CenterCrop', crop_size=8)
RGB = dict(type='Normalize', mean=MEAN, std=STD)
BGR = dict(type='Normalize', mean=[3.0, 20.0, 40.0], std=[2.0, 5.0, 9.0], to_rgb=False)
PREPROCESSORS = dict(
    mmseg=('SegDataPreProcessor', 'bgr_to_rgb'),
    mmdet=('DetDataPreprocessor', 'bgr_to_rgb'),
    mmpretrain=('ClsDataPreprocessor', 'to_rgb'),
)


def config(package, steps, own):
    kind, key = PREPROCESSORS[package]
    own = {key if name == 'swaps' else name: value for name, value in own.items()}
    pipeline = [LOAD, *deepcopy(steps), PACK]
    return Config(
        dict(
            default_scope=package,
            model=dict(type='Any', data_preprocessor=dict(type=kind, **own)),
            test_dataloader=dict(dataset=dict(type='Any', pipeline=pipeline)),
        )
    )


@pytest.mark.parametrize('package', PREPROCESSORS)
@pytest.mark.parametrize(
    ('steps', 'own', 'reverses'),
    [
        ([], dict(mean=MEAN, std=STD, swaps=True), True),
        ([], {}, False),
        ([RGB], {}, True),
        ([RGB], dict(swaps=True), False),
        ([BGR], dict(swaps=True), True),
        ([RGB], dict(mean=[0.1, 0.2, 0.3], std=[2.0, 3.0, 4.0]), True),
        ([RGB, CROP, BGR], dict(mean=[0.1], std=[2.0], swaps=True), False),
    ],
)
def test_graphs_normalise_as_pipeline_and_preprocessor(package, steps, own, reverses):
    pytest.importorskip(package)
    cfg = config(package, steps, own)
    init_default_scope(package)
    image = np.random.default_rng(0).integers(0, 256, (12, 14, 3), np.uint8)
    results = dict(img=image)
    for step in steps:
        results = TRANSFORMS.build(step)(results)
    pixels = torch.from_numpy(np.ascontiguousarray(results['img'].transpose(2, 0, 1)))
    data = dict(inputs=[pixels], data_samples=[BaseDataElement()])
    preprocessor = MODELS.build(cfg.model.data_preprocessor)
    wanted = preprocessor(data, False)['inputs'].float()
    crop = slice(2, 10), slice(3, 11)
    loaded = image[crop] if CROP in steps else image
    loaded = torch.from_numpy(loaded.transpose(2, 0, 1).copy())[None].float()
    found = normalization(cfg)
    assert found.reverses == reverses
    of_graph = graph_order(cfg, loaded)
    if found.mean is not None:
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in found[1:])
        of_graph = (of_graph - mean) / std
    torch.testing.assert_close(of_graph, wanted, rtol=1e-5, atol=1e-5)
    data['inputs'] = [*normalized(cfg, loaded)]
    torch.testing.assert_close(preprocessor(data, False)['inputs'].float(), wanted)


RESIZE, PAD = dict(type='Resize', scale=8), dict(type='Pad', size_divisor=8)
PADDED_CROP = dict(CROP, auto_pad=True)


@pytest.mark.parametrize(
    ('pipeline', 'folded'),
    [
        ([LOAD, RESIZE, RGB, PACK], [RGB]),
        ([LOAD, RGB, CROP, dict(type='LoadAnnotations'), BGR, PACK], [RGB, BGR]),
        # Other steps compute pixels from normalised ones.
        ([LOAD, RGB, RESIZE, PACK], []),
        ([LOAD, RGB, PAD, PACK], []),
        ([LOAD, RGB, PADDED_CROP, BGR, PACK], [BGR]),
        ([LOAD, RGB, dict(type='MyBlur'), PACK], []),
    ],
)
def test_steps_that_graphs_include(pipeline, folded):
    others = [step for step in pipeline if step not in folded]
    assert split_normalize(pipeline) == (folded, others)
