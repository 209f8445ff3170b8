"""Bundles of exported stitches, and their predictions without torch."""

import json
import multiprocessing
import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from manifests import open_exported, path_of, plain
from numpy.testing import assert_allclose, assert_array_equal
from old_torch import writes_onnx
from safetensors import safe_open
from small import SIZES, small, smooth_images

from snnet_mm.exports import StitchExporter
from snnet_mm.exports.description import describe_graphs
from snnet_mm.exports.graph import PredictionGraph
from snnet_mm.exports.normalization import normalization
from snnet_mm.inferencers import init_inferencer, predictions_of
from snnet_mm.models import set_stitch
from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.steps import Steps

pytest.importorskip('cv2')
onnx = pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')
pytestmark = writes_onnx

PAGE = Path(__file__).parents[2] / 'docs/how_to/deploy.md'
IDS, PRECISIONS = (0, 2, 1), ('fp32', 'int8')


@pytest.fixture(scope='module')
def exporter(short_model, tmp_path_factory):
    """A bundle of :data:`IDS` in two precisions, which is written once."""
    exporter = StitchExporter(*short_model(), tmp_path_factory.mktemp('bundle'))
    exporter.manifest = exporter.export_bundle(IDS, precisions=PRECISIONS)
    return exporter


@pytest.fixture
def bundle(exporter, tmp_path):
    shutil.copytree(exporter.out_dir, tmp_path, dirs_exist_ok=True)
    return tmp_path


def graph_of(folder, stitch, precision):
    path = path_of(folder, f'stitch_{stitch}_64x64_{precision}.onnx')
    return onnx.load(path, load_external_data=False).graph


def test_bundle_in_two_precisions(exporter, logits):
    folder, manifest = exporter.out_dir, exporter.manifest
    assert manifest == json.loads((folder / 'manifest.json').read_text())
    files = [file for stitch in manifest['stitches'] for file in stitch['files']]
    names = [plain(file['name']) for file in files]
    pairs = [*product(IDS, PRECISIONS)]
    assert names == [f'stitch_{i}_64x64_{p}.onnx' for i, p in pairs]
    assert all(file['weights'] == manifest['weights'] for file in files)
    for file in (*files, manifest['weights']):
        assert f'-{file["sha256"][:8]}.' in file['name']
    # Two blocks of four linear layers, and one for the map; the head stays as it is.
    ops = [node.op_type for node in graph_of(folder, 0, 'int8').node]
    assert ops.count('MatMulInteger') == 9
    normalise, images = exporter.model.data_preprocessor, exporter.graph_images
    for (i, precision), file in zip(pairs, files, strict=True):
        set_stitch(exporter.model, i)
        wanted = logits(exporter.model, (images - normalise.mean) / normalise.std)
        off = open_exported(folder, file)(images) - wanted
        if precision == 'fp32':
            assert off.abs().max() < 1e-3
        else:
            assert 1e-5 < off.norm() / wanted.norm() < 0.3
            found = file['max_difference']
            assert found == pytest.approx(off.abs().max().item(), rel=1e-2)


def test_bundle_stores_every_weight_once(exporter):
    """A name has one place in the file, in all graphs, and a place one name."""
    folder, places, used = exporter.out_dir, {}, {}
    for i, p in product(IDS, PRECISIONS):
        for tensor in (
            t for t in graph_of(folder, i, p).initializer if t.external_data
        ):
            about = {entry.key: entry.value for entry in tensor.external_data}
            place, name = about['offset'], tensor.name.partition('[')[0]
            assert places.setdefault(name, place) == place
            used.setdefault(name, set()).add((i, p))
    assert len({*places.values()}) == len(places)
    for name, sharing in (
        ('backbone.anchors.0.blocks.0.norm1.weight', {0, 2}),
        ('backbone.anchors.1.blocks.2.mlp.fc2.weight.T', {1, 2}),
        ('backbone.stitching_layers.0to1_0.weight.T', {2}),
        ('decode_head.conv_seg.weight', {0, 1, 2}),
        # Batch norms with statistics of stitch 0 are merged into it.
        ('decode_head.up_convs.0.0.conv.weight', {0}),
        ('decode_head.up_convs.0.0.conv.weight@2', {1, 2}),
    ):
        assert {i for i, p in used[name] if p == 'fp32'} == sharing, name
    assert {p for _, p in used['decode_head.conv_seg.weight']} == {*PRECISIONS}
    with safe_open(path_of(folder, 'weights.safetensors'), 'pt') as file:
        assert {*file.keys()} == {*places}
        merged = file.get_tensor('backbone.stitching_layers.0to1_0.weight.T')
    layer = exporter.model.backbone.stitching_layers['0to1_0'].merged()
    assert torch.equal(merged, layer.weight.T)


def assert_predicts_as_mm(cfg, model, steps, counts, close):
    """Assert that images of three sizes are predicted as by mm's inferencer.

    ``steps`` are added to the pipeline; ``counts`` are the images of each run.
    """
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline[-1:] = [*steps, pipeline[-1]]
    model.cfg = cfg
    set_stitch(model, 0)
    graph, ran = PredictionGraph(model, (64, 64), normalization(cfg)._asdict()), []

    def run(images):
        ran.append(len(images))
        return [graph(torch.from_numpy(images)).numpy()]

    images = [*smooth_images(SIZES * 2)]
    images[3:] = [image[::-1].copy() for image in images[3:]]
    with torch.no_grad():
        maps = graph(torch.zeros(1, 3, 64, 64))
        steps = Steps(describe_graphs(cfg, model, (64, 64), maps))
        found = steps.predict(run, images)
    assert ran == counts
    arrays = [image[..., ::-1] for image in images]
    wanted = predictions_of(init_inferencer(model)(arrays, return_datasamples=True))
    for prediction, right in zip(found, wanted, strict=True):
        close(prediction, right)
    return found


@pytest.mark.parametrize(
    ('mode', 'padded', 'scale', 'counts'),
    [
        ('whole', {}, (64, 64), [6]),
        ('whole', dict(size_divisor=16), (50, 60), [6]),
        ('slide', {}, (120, 80), [2] * 16),  # windows of two images of a size
        ('slide', dict(size=(64, 64)), (120, 80), [2] * 16),
    ],
)
def test_masks_are_those_of_mm(short_model, mode, padded, scale, counts):
    cfg, _ = short_model()
    if mode == 'slide':
        cfg.model.test_cfg = dict(mode=mode, crop_size=(64, 64), stride=(40, 48))
    cfg.model.data_preprocessor.test_cfg = padded
    model = short_model(cfg)[1]
    resize = dict(type='Resize', scale=scale, keep_ratio=mode == 'slide')
    masks = assert_predicts_as_mm(cfg, model, [resize], counts, assert_array_equal)
    assert max(len(np.unique(mask)) for mask in masks) > 1


NORMALIZE = dict(type='Normalize', mean=[120.0, 90.0, 100.0], std=[60.0, 50.0, 70.0])
PLAIN = dict(mean=None, std=None, bgr_to_rgb=False)
SQUARE = dict(type='Resize', scale=(64, 64))
EDGE = dict(type='mmpretrain.ResizeEdge', scale=70, backend='pillow')
CROP = dict(type='CenterCrop', crop_size=64)


@pytest.mark.parametrize(
    ('steps', 'own'),
    [
        ([dict(SQUARE, backend='pillow', interpolation='bicubic'), NORMALIZE], PLAIN),
        ([SQUARE, dict(NORMALIZE, to_rgb=False)], dict(PLAIN, bgr_to_rgb=True)),
        ([dict(SQUARE, interpolation='area'), NORMALIZE], dict(mean=[0.1], std=[2.0])),
        # mm enlarges what it predicts of the crop to the size of the image.
        ([EDGE, CROP, NORMALIZE], PLAIN),
    ],
)
def test_masks_after_steps_of_pipelines_are_those_of_mm(short_model, steps, own):
    pytest.importorskip('mmpretrain.datasets')
    cfg, _ = short_model()
    cfg.model.data_preprocessor.update(own)
    if own.get('mean', ()) is None:
        cfg.model.data_preprocessor.pop('size', None)
    model = short_model(cfg)[1]
    masks = assert_predicts_as_mm(cfg, model, steps, [6], assert_array_equal)
    assert max(len(np.unique(mask)) for mask in masks) > 1


@pytest.mark.parametrize('steps', [[EDGE, CROP], [EDGE, NORMALIZE, CROP]])
def test_labels_after_steps_of_pipelines_are_those_of_mm(build, steps):
    pytest.importorskip('mmpretrain')
    cfg = small('cls')
    model = build(cfg)
    model.dataset_meta = dict(classes=('disk', 'square'))
    close = partial(assert_allclose, rtol=1e-5)
    found = assert_predicts_as_mm(cfg, model, steps, [6], close)
    assert np.ptp(found, 0).max() > 2e-4


SLIDING = dict(crop_size=(64, 64), stride=(64, 40))
# With the width of images, and the images of each run for a batch of six.
DEPTHS = [
    ('DPTDepthEstimator', dict(mode='whole', flip=True), 64, [12]),
    # The image is mirrored; of mmseg's every window, and its 'slide' slides not.
    ('DPTDepthEstimator', dict(mode='slide', flip=True, **SLIDING), 114, [6] * 6),
    ('DepthEstimator', dict(mode='slide_flip', **SLIDING), 114, [12] * 3),
    ('DepthEstimator', dict(mode='slide', flip=True, **SLIDING), 64, [6]),
]


def depth_config(kind, test_cfg):
    cfg = small('depth')
    for anchor in cfg.model.backbone.anchors:
        anchor.arch.depth = 4
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.update(type=kind, test_cfg=test_cfg)
    return cfg


@pytest.mark.parametrize(('kind', 'test_cfg', 'width', 'counts'), DEPTHS)
def test_depths_are_those_of_mm(build, kind, test_cfg, width, counts):
    cfg = depth_config(kind, test_cfg)
    resize = dict(type='Resize', scale=(width, 64), keep_ratio=False)
    close = partial(assert_allclose, rtol=1e-3)
    assert_predicts_as_mm(cfg, build(cfg), [resize, NORMALIZE], counts, close)


def test_stitches_exported_under_a_live_runtime(bundle):
    """The graph that is open stays; another is not opened beside it."""
    runtime, (image,) = StitchRuntime(bundle), smooth_images(SIZES[:1])
    mask, path = runtime(image), path_of(bundle, 'weights.safetensors')
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    (bundle / 'new').write_bytes(content)
    os.replace(bundle / 'new', path)
    with pytest.raises(ValueError, match=r'weights-\w+.safetensors: sha256=.* anew'):
        runtime.set_stitch(2)
    assert runtime.active_stitch == 1
    assert_array_equal(runtime(image), mask)


def test_runtime_in_a_spawned_process(bundle, monkeypatch):
    """It runs there what was selected here, wherever that process is."""
    monkeypatch.chdir(bundle.parent)
    runtime, (image,) = StitchRuntime(bundle.name, threads=1), smooth_images(SIZES[:1])
    runtime.set_stitch(2)
    monkeypatch.chdir('/')
    spawn = multiprocessing.get_context('spawn')
    with ProcessPoolExecutor(1, spawn) as pool:
        masks = [*pool.map(runtime, [image, image[::-1].copy()])]
        (batched,) = pool.submit(runtime.predict_batch, [image]).result()
    assert_array_equal(masks[1], runtime(image[::-1].copy()))
    for mask in (masks[0], batched):
        assert_array_equal(mask, runtime(image))
    runtime.set_stitch(0)
    assert (masks[0] != runtime(image)).any()


def test_program_of_the_page(bundle, tmp_path, monkeypatch, capsys):
    pattern = re.compile(r'^```python\n(import numpy.*?)^```', re.DOTALL | re.MULTILINE)
    (program,) = pattern.findall(PAGE.read_text())
    (image,) = smooth_images(SIZES[1:2])
    np.save(tmp_path / 'image.npy', image)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        StitchRuntime, '_measure', lambda _, keys: {k: 1.0 + k[1] for k in keys}
    )
    found = {}
    exec(program.replace("'DIR'", repr(str(bundle))), found)
    assert_array_equal(found['mask'], StitchRuntime(bundle)(image))
    assert "2: 'fast[0:1] > slow[" in capsys.readouterr().out
