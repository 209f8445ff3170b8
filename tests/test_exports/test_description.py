"""What the manifest says that the caller of a graph does."""

from copy import deepcopy

import pytest
import torch
from mmengine.config import Config
from small import SHORT, small
from torch import nn

from snnet_mm.exports import StitchExporter
from snnet_mm.exports.description import describe_graphs, describe_input
from snnet_mm.runtime.steps import OF_IMAGE, Steps

RESIZE = dict(type='Resize', scale=(96, 64), keep_ratio=True)
LOAD = dict(type='LoadImageFromFile')
RESIZED = dict(step='resize', size=[64, 96], keep_ratio=True)
RESIZED |= dict(backend='cv2', interpolation='bilinear')
EDGE = dict(type='ResizeEdge', scale=70, backend='pillow', interpolation='bicubic')
EDGED = dict(step='resize_edge', length=70, edge='short', backend='pillow')
EDGED |= dict(interpolation='bicubic')
CROPPED, LEFT = dict(step='center_crop', size=[48, 64]), ['EfficientNetCenterCrop']
NORMALIZE = dict(type='Normalize', mean=[1.0, 2, 3], std=[4.0, 5, 6])
MAPS = torch.zeros(1, 6, 64, 64)


@pytest.fixture
def cfg(toy_cfg):
    return toy_cfg(sizes=SHORT)


@pytest.mark.parametrize(
    ('steps', 'found'),
    [
        ([RESIZE], [RESIZED]),
        ([RESIZE | dict(backend='pillow')], [RESIZED | dict(backend='pillow')]),
        ([RESIZE, RESIZE], [RESIZED, RESIZED]),
        ([EDGE, dict(type='CenterCrop', crop_size=(64, 48))], [EDGED, CROPPED]),
        ([dict(type='CenterCrop', crop_size=64, auto_pad=True)], ['CenterCrop']),
        ([dict(type='EfficientNetCenterCrop', crop_size=64)], LEFT),
        ([dict(type='Resize', scale_factor=0.5)], ['Resize']),
        ([dict(type='torchvision/Resize', size=64)], ['torchvision/Resize']),
        ([NORMALIZE], []),
        ([NORMALIZE, RESIZE], ['Normalize', RESIZED]),
        ([NORMALIZE, dict(type='Pad', size_divisor=32)], ['Normalize', 'Pad']),
        ([dict(LOAD, color_type='color_ignore_orientation')], ['LoadImageFromFile']),
        ([dict(LOAD, to_float32=True)], []),
        # Floats are not resized as bytes are.
        ([dict(LOAD, to_float32=True), RESIZE], ['LoadImageFromFile', RESIZED]),
    ],
)
def test_steps_of_a_pipeline(cfg, build, steps, found):
    cfg.test_dataloader.dataset.pipeline[-1:-1] = deepcopy(steps)
    before = describe_graphs(cfg, build(cfg), (64, 64), MAPS)['caller']['before']
    named = [step if step['step'] in OF_IMAGE else step['step'] for step in before]
    assert named == [*found, 'channels', 'batch']


PAD = dict(type='Pad', size=(64, 64), pad_val=dict(img=(114, 115, 116)))
OBJECTS = dict(RESIZE, scale=(64, 64))


@pytest.mark.parametrize(
    ('steps', 'left', 'padding'),
    [
        ([OBJECTS, PAD], [], [116, 115, 114]),
        ([OBJECTS], [], None),
        # What is padded at first is resized as image content.
        ([PAD, OBJECTS], ['Pad'], None),
        ([OBJECTS, PAD, PAD], ['Pad'], [116, 115, 114]),
        ([OBJECTS, dict(PAD, padding_mode='reflect')], ['Pad'], None),
        # mm places boxes by the last resizing alone.
        ([OBJECTS, OBJECTS], ['Resize'], None),
        ([OBJECTS, dict(type='CenterCrop', crop_size=64)], ['CenterCrop'], None),
        ([EDGE], [], None),
    ],
)
def test_steps_of_detectors(build, steps, left, padding):
    pytest.importorskip('mmdet')
    cfg = small('det')
    cfg.test_dataloader.dataset.pipeline[-1:-1] = deepcopy(steps)
    found = describe_input(cfg, build(cfg), (64, 64))
    assert Steps(found).left == left
    (pad,) = (s for s in found['caller']['before'] if s['step'] == 'pad')
    own = cfg.model.data_preprocessor
    assert own.bgr_to_rgb
    assert pad['value'] == pytest.approx(padding or own.mean)


def test_classifiers_pad_to_multiples(build):
    """After normalisation, so that other pixels are seen as the padding."""
    pytest.importorskip('mmpretrain')
    cfg = small('cls')
    own = dict(mean=[10.0], std=[2.0, 3.0, 4.0], pad_size_divisor=32, pad_value=5)
    cfg.model.data_preprocessor.update(own)
    found = describe_input(cfg, build(cfg), (64, 64))['caller']['before']
    (pad,) = (step for step in found if step['step'] == 'pad')
    assert pad == dict(step='pad', value=[20, 25, 30], size=None, size_divisor=32)


def test_grey_images_are_refused(cfg, build):
    cfg.test_dataloader.dataset.pipeline[:0] = [dict(LOAD, color_type='grayscale')]
    with pytest.raises(ValueError, match="color_type='grayscale' is .*of 3 channels"):
        describe_graphs(cfg, build(cfg), (64, 64), MAPS)


@pytest.mark.parametrize(
    ('settings', 'size'),
    [
        (dict(mode='slide', crop_size=(48, 64), stride=(32, 43)), (48, 64)),
        (dict(mode='whole', crop_size=(48, 64)), (80, 96)),
    ],
)
def test_graphs_take_windows_or_what_the_config_says(
    cfg, build, tmp_path, settings, size
):
    cfg.model.test_cfg, cfg.test_cfg.input_size = settings, (80, 96)
    model = build(cfg)
    exporter = StitchExporter(cfg, model, tmp_path)
    assert exporter.size == exporter.costs.input_size == size
    if settings['mode'] == 'slide':
        with pytest.raises(ValueError, match="shape='32x32' is invalid"):
            StitchExporter(cfg, model, tmp_path, size=(32, 32))


@pytest.mark.parametrize(
    ('settings', 'chosen'),
    [
        ({}, dict(step='threshold', above=0.5)),
        (dict(thr=0.2), dict(step='threshold', above=0.2)),
        (dict(topk=3), dict(step='top', number=3)),
    ],
)
def test_classifiers_with_several_labels_for_an_image(settings, chosen):
    heads = pytest.importorskip('mmpretrain.models.heads')
    model = nn.Module()
    model.head = heads.MultiLabelClsHead(**settings)
    cfg = Config(dict(model=dict(type='ImageClassifier')))
    after = describe_graphs(cfg, model, (64, 64), torch.zeros(1, 5))['caller']['after']
    assert after == [dict(step='sigmoid'), chosen]


def test_models_of_other_tasks_are_taken_as_classifiers(cfg):
    found = describe_graphs(cfg, nn.Module(), (64, 64), torch.zeros(1))
    steps = [step['step'] for step in found['caller']['after']]
    assert (found['task'], steps) == ('classification', ['softmax', 'argmax'])
