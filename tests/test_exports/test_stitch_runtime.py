import json
import os
import re
import shutil
import threading
from functools import partial
from itertools import count, product
from pathlib import Path

import numpy as np
import pytest
import torch
from manifests import path_of, plain
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from numpy.testing import assert_allclose, assert_array_equal
from old_torch import writes_onnx
from safetensors import safe_open
from toy import SHORT, SIZES, smooth_images

import snnet_mm
from snnet_mm.exports import StitchExporter, load_export
from snnet_mm.exports.description import describe_graphs
from snnet_mm.inference.init_inferencer import init_inferencer
from snnet_mm.models import set_statistics, set_stitch
from snnet_mm.runtime import StitchRuntime
from snnet_mm.runtime.device import processor, usable_cores
from snnet_mm.runtime.images import resize_image
from snnet_mm.runtime.runtime import REPEATS

cv2 = pytest.importorskip('cv2')
onnx = pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')
pytestmark = writes_onnx

ROOT = Path(__file__).parents[2]
IDS = (0, 2, 1)
MS = {0: 10, 2: 20, 1: 40}


def pipeline_of(cfg, *steps):
    """Put steps in front of the packing."""
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline[-1:] = [*steps, pipeline[-1]]
    return cfg


def predictions(cfg, model, runtime, ids=IDS, sizes=SIZES):
    """What mm's inferencer and the runtime say of images, by stitches."""
    model.cfg = cfg
    inferencer = init_inferencer(model)
    for stitch in ids:
        set_stitch(model, stitch)
        runtime.set_stitch(stitch)
        for image in smooth_images(sizes):
            bgr = np.ascontiguousarray(image[..., ::-1])
            yield inferencer(bgr, return_datasamples=True), runtime(image)


def assert_batches(runtime, counts, close=assert_array_equal):
    """Assert that batches of images of several sizes are predicted as one by one."""
    images, seen, session = [*smooth_images(SIZES * 2)], [], runtime._session
    images[3:] = [image[::-1].copy() for image in images[3:]]

    def counting(key):
        run = session(key)
        return lambda *arrays: seen.append(len(arrays[0])) or run(*arrays)

    runtime._session = counting
    found = runtime.predict_batch(images)
    assert seen == counts
    for image, got in zip(images, found, strict=True):
        wanted = runtime(image)
        assert type(got) is type(wanted)
        for a, b in zip(got, wanted, strict=True):
            close(a, b)
    assert runtime.predict_batch([]) == []
    runtime._session = session


def copy_for(model, cfg, exported, folder):
    """Copy an export of the same graphs, with the manifest of another model."""
    shutil.copytree(exported, folder, dirs_exist_ok=True)
    path = folder / 'manifest.json'
    manifest = json.loads(path.read_text())
    maps = [torch.zeros(1, *o['shape'][1:]) for o in manifest['outputs']]
    about = describe_graphs(cfg, model, (64, 64), tuple(maps))
    path.write_text(json.dumps(manifest | about))
    return StitchRuntime(folder)


@torch.no_grad()
def with_statistics(model):
    """Give stitch 0 batch norm statistics of its own, and all classes a chance.

    The biases of the classes are such that each is as likely as another on noise.
    """
    noise = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    head = model.decode_head
    head.conv_seg.bias -= head(model.backbone(noise)).mean((0, 2, 3))
    mixed = {k: v.clone() for k, v in model.state_dict().items() if 'running' in k}
    statistics = dict.fromkeys(IDS, mixed)
    statistics[0] = {name: 1.2 * value for name, value in mixed.items()}
    set_statistics(model, statistics)
    return model


@pytest.fixture(scope='module')
def exporter(toy_cfg, build, tmp_path_factory):
    """A bundle of :data:`IDS` in two precisions, which is written once."""
    folder, cfg = tmp_path_factory.mktemp('bundle'), toy_cfg(sizes=SHORT)
    exporter = StitchExporter(cfg, with_statistics(build(cfg)), folder)
    exporter.manifest = exporter.export_bundle(IDS, precisions=('fp32', 'int8'))
    return exporter


@pytest.fixture(scope='module')
def exported(exporter):
    """The folder of the bundle, whose latencies in float32 were measured."""
    StitchRuntime(exporter.out_dir).latencies()
    return exporter.out_dir


@pytest.fixture
def compare(exporter, logits):
    """How far a file is from its stitch, on images; in units of their logits."""
    normalise = exporter.model.data_preprocessor

    def compare(stitch, precision, images):
        set_stitch(exporter.model, stitch)
        wanted = logits(exporter.model, (images - normalise.mean) / normalise.std)
        name = f'stitch_{stitch}_64x64_{precision}.onnx'
        got = load_export(path_of(exporter.out_dir, name))(images)
        return got - wanted, ((got - wanted).norm() / wanted.norm()).item()

    return compare


def test_a_bundle_in_two_precisions(exporter, compare):
    folder, manifest = exporter.out_dir, exporter.manifest
    assert manifest == json.loads((folder / 'manifest.json').read_text())
    files = [file for stitch in manifest['stitches'] for file in stitch['files']]
    files = {plain(file['name']): file for file in files}
    precisions = 'fp32', 'int8'
    assert set(files) == {f'stitch_{i}_64x64_{p}.onnx' for i in IDS for p in precisions}
    assert all(file['shares_weights'] for file in files.values())
    for file in (*files.values(), manifest['weights']):
        assert f'-{file["sha256"][:8]}.' in file['name']
    ops = {}
    for p in precisions:
        path = path_of(folder, f'stitch_0_64x64_{p}.onnx')
        nodes = onnx.load(path, load_external_data=False).graph.node
        ops[p] = [node.op_type for node in nodes]
    # Two blocks of four linear layers, and one for the map; the head stays as it is.
    assert ops['int8'].count('MatMulInteger') == 9
    assert 'MatMulInteger' not in ops['fp32']
    assert ops['int8'].count('Conv') == ops['fp32'].count('Conv')
    for i in IDS:
        images = 255 * torch.rand(3, 3, 64, 64)
        assert compare(i, 'fp32', images)[0].abs().max() < 1e-3
        off, error = compare(i, 'int8', exporter.graph_images)
        assert 1e-5 < error < 0.3
        most = files[f'stitch_{i}_64x64_int8.onnx']['max_difference']
        assert most == pytest.approx(off.abs().max().item(), rel=1e-2)


def test_a_bundle_stores_every_weight_once(exporter):
    """A name has one place in the file, in all graphs, and a place one name."""
    folder, places, used = exporter.out_dir, {}, {}
    for i, p in product(IDS, ('fp32', 'int8')):
        path = path_of(folder, f'stitch_{i}_64x64_{p}.onnx')
        tensors = onnx.load(path, load_external_data=False).graph.initializer
        for tensor in (tensor for tensor in tensors if tensor.external_data):
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
    assert {p for _, p in used['decode_head.conv_seg.weight']} == {'fp32', 'int8'}
    with safe_open(path_of(folder, 'weights.safetensors'), 'pt') as file:
        assert {*file.keys()} == {*places}
        merged = file.get_tensor('backbone.stitching_layers.0to1_0.weight.T')
    layer = exporter.model.backbone.stitching_layers['0to1_0'].merged()
    assert torch.equal(merged, layer.weight.T)
    with pytest.raises(ValueError, match="stitch_9.onnx' is invalid"):
        load_export(folder / 'stitch_9.onnx')


@pytest.mark.parametrize('padded', [{}, dict(size=(64, 64)), dict(size_divisor=16)])
@pytest.mark.parametrize('mode', ['whole', 'slide'])
def test_masks_are_those_of_mm(toy_cfg, build, exported, tmp_path, mode, padded):
    cfg = toy_cfg(sizes=SHORT)
    resize = dict(type='Resize', scale=(64, 64), keep_ratio='size' in padded)
    if mode == 'slide':
        resize = dict(type='Resize', scale=(120, 80), keep_ratio=True)
        windows = dict(mode='slide', crop_size=(64, 64), stride=(40, 48))
        cfg.model.test_cfg = windows
    elif 'size_divisor' in padded:
        resize['scale'] = (50, 60)
    cfg.model.data_preprocessor.test_cfg = padded
    cfg = pipeline_of(cfg, resize)
    model, varied = with_statistics(build(cfg)), 0
    runtime = copy_for(model, cfg, exported, tmp_path)
    for sample, mask in predictions(cfg, model, runtime):
        assert_array_equal(mask, sample.pred_sem_seg.data[0].numpy())
        varied += len(np.unique(mask)) > 1
    assert varied > len(SIZES)
    if not padded:  # all of a size, or windows of two images of a size
        assert_batches(runtime, [6] if mode == 'whole' else [2] * 16)
    if mode == 'slide' and not padded:
        # 2 x 3 windows; an image of the graph's size would have 2 x 2.
        runtime, ran = StitchRuntime(tmp_path, image_size=(80, 120)), []
        session = runtime._session
        runtime._session = lambda k: lambda *x: ran.append(k) or session(k)(*x)
        runtime.latencies()
        assert len(ran) == 6 * (1 + REPEATS) * len(IDS)
        assert {*ran[: 6 * len(IDS)]} == {*ran}  # in rounds


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
    config = 'configs/toy/dpt_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'
    cfg = Config.fromfile(ROOT / config)
    cfg.test_dataloader.dataset.num_scenes = 4
    for anchor in cfg.model.backbone.anchors:
        anchor.arch.depth = 4
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.update(type=kind, test_cfg=test_cfg)
    return cfg


@pytest.fixture(scope='module')
def exported_depth(build, tmp_path_factory):
    cfg, folder = depth_config(*DEPTHS[0][:2]), tmp_path_factory.mktemp('depth')
    StitchExporter(cfg, build(cfg), folder).export_stitch(0, ['onnx'])
    return folder


@pytest.mark.parametrize(('kind', 'test_cfg', 'width', 'counts'), DEPTHS)
def test_depths_are_those_of_mm(
    build, exported_depth, tmp_path, kind, test_cfg, width, counts
):
    cfg = depth_config(kind, test_cfg)
    cfg = pipeline_of(cfg, dict(type='Resize', scale=(width, 64), keep_ratio=False))
    model = build(cfg)
    runtime = copy_for(model, cfg, exported_depth, tmp_path)
    for sample, depth in predictions(cfg, model, runtime, (0,)):
        wanted = sample.pred_depth_map.data[0].numpy()
        assert depth.shape == wanted.shape
        assert_allclose(depth, wanted, rtol=1e-3)
    assert_batches(runtime, counts, partial(assert_allclose, rtol=1e-5))


@pytest.fixture(scope='module')
def detector():
    """A toy detector, whose scores and shapes differ, and its config."""
    pytest.importorskip('mmdet')
    config = 'configs/toy/mask-rcnn_snnetv2-fast-slow_1xb8-300_toy-scenes-64x64.py'
    cfg = Config.fromfile(ROOT / config)
    cfg.test_dataloader.dataset.num_scenes = 4
    for anchor, depth in zip(cfg.model.backbone.anchors, (2, 3), strict=True):
        anchor.arch.depth = depth
    for head in (cfg.model.roi_head.bbox_head, cfg.model.roi_head.mask_head):
        head.num_classes = 3
    cfg = pipeline_of(cfg, dict(type='Resize', scale=(64, 64), keep_ratio=True))
    torch.manual_seed(0)
    init_default_scope('mmdet')
    model = MODELS.build(cfg.model).eval()
    # Boxes have an area.
    for layer, std in {
        model.rpn_head.rpn_cls: 0.3, model.rpn_head.rpn_reg: 0.03,
        model.roi_head.bbox_head.fc_cls: 0.3, model.roi_head.bbox_head.fc_reg: 0.1,
        model.roi_head.mask_head.conv_logits: 0.3,
    }.items():  # fmt: skip
        torch.nn.init.normal_(layer.weight, std=std)
    model.dataset_meta = dict(classes=('a', 'b', 'c'))
    return cfg, model


@pytest.fixture(scope='module')
def exported_detector(detector, tmp_path_factory):
    folder = tmp_path_factory.mktemp('detector')
    StitchExporter(*detector, folder).export_stitch(2, ['onnx'])
    return folder


@pytest.mark.slow
def test_boxes_and_masks_are_those_of_mm(detector, exported_detector):
    runtime, seen = StitchRuntime(exported_detector), []
    assert runtime.manifest['input']['shape'][0] == 1
    for sample, found in predictions(*detector, runtime, (2,)):
        wanted = sample['predictions'][0].pred_instances.numpy()
        assert_array_equal(found.labels, wanted.labels)
        assert_allclose(found.boxes, wanted.bboxes, atol=1e-3)
        assert_allclose(found.scores, wanted.scores, atol=1e-5)
        assert_array_equal(found.masks, wanted.masks)
        seen += [*found.labels]
    assert len(seen) > 10
    assert len({*seen}) > 1
    assert_batches(runtime, [6], partial(assert_allclose, rtol=1e-4, atol=1e-4))


@pytest.mark.slow
def test_a_video_of_a_detector_is_drawn(exported_detector, run_here, tmp_path):
    (frames := tmp_path / 'frames').mkdir()
    images = [*smooth_images([(64, 96)] * 3)]
    for n, image in enumerate(images):
        cv2.imwrite(str(frames / f'{n}.png'), image[..., ::-1])
    out = tmp_path / 'out.avi'
    args = (frames, exported_detector, '--output-file', out, '--score-thr', 0)
    assert 'frames by stitch: 2: 3\n' in run_here('video_demo.py', *args)
    capture = cv2.VideoCapture(str(out))
    for image in images:
        picture = capture.read()[1][..., ::-1].astype(float)
        # The masks and boxes of many objects, not the caption alone.
        changed = np.abs(picture - image).max(-1)[32:] > 60
        assert changed.mean() > 0.1
    assert not capture.read()[0]


def test_images_are_resized_as_by_opencv():
    random = np.random.default_rng(0)
    for _ in range(40):
        height, width, *size = (int(n) for n in random.integers(1, 200, 4))
        image = random.integers(0, 256, (height, width, 3), np.uint8)
        wanted = cv2.resize(image, size[::-1])
        assert_array_equal(resize_image(image, tuple(size)), wanted)


@pytest.fixture
def bundle(exported, tmp_path):
    """A copy of the bundle, with times that are taken as measured."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    path = tmp_path / 'latencies.json'
    ((key, measured),) = json.loads(path.read_text()).items()
    assert {*map(plain, measured)} == {f'stitch_{i}_64x64_fp32.onnx' for i in IDS}
    assert min(measured.values()) > 0
    times = {
        path_of(tmp_path, f'stitch_{i}_64x64_fp32.onnx').name: ms
        for i, ms in MS.items()
    }
    path.write_text(json.dumps({'of another device': {}, key: times}))
    return tmp_path


def test_budgets(bundle):
    runtime = StitchRuntime(bundle)
    assert list(runtime.stitches) == list(IDS)
    assert runtime.active_stitch == 1
    flops, params = runtime.stitches[2]['flops'], runtime.stitches[0]['params']
    for budget, stitch in {
        '25ms': 2, '40ms': 1, '10ms': 0,
        f'{1.01 * flops / 1e9:.9f}G': 2, f'{1.01 * params / 1e6:.9f}M': 0,
        '100%': 1, f'{101 * flops / runtime.stitches[1]["flops"]:.6f}%': 2,
    }.items():  # fmt: skip
        assert runtime.set_budget(budget) == runtime.active_stitch == stitch
    for budget, message in {
        '9ms': 'at least 10ms, the cost of stitch 0 in fp32',
        '3MB': 'budget=.* in %, ms, G, M',
        None: 'budget=None is invalid',
    }.items():
        with pytest.raises(ValueError, match=message):
            runtime.set_budget(budget)
    assert runtime.set_budget('9ms', fallback='cheapest') == 0
    with pytest.raises(ValueError, match="'fastest' is invalid"):
        runtime.set_budget('9ms', fallback='fastest')
    with pytest.raises(ValueError, match='stitch_id=3 is .* 0, 2, 1'):
        runtime.set_stitch(3)


def test_no_call_opens_a_graph(bundle, monkeypatch):
    """Held at 15 ms, the stitch of 10 ms runs; it takes far less, so the best comes."""
    opened, (image,) = [], smooth_images(SIZES[:1])
    real = snnet_mm.runtime.runtime.open_graph

    def open_graph(folder, kind, file, threads):
        opened.append(int(file['name'].split('_')[1]))
        return real(folder, kind, file, threads)

    monkeypatch.setattr('snnet_mm.runtime.runtime.open_graph', open_graph)
    runtime = StitchRuntime(bundle)
    for act, wanted, stitches in (
        (lambda: None, [1], [1, 1]),
        (lambda: runtime.set_budget('25ms'), [1, 2], [2, 2]),
        (lambda: runtime.hold(fps=1000 / 15), [1, 2, 0], [0, 1]),
        (lambda: runtime.hold(None), [1, 2, 0], [1, 1]),
    ):
        act()
        found = [runtime.active_stitch]
        for _ in range(40):
            runtime(image)
        assert [*found, runtime.active_stitch] == stitches
        assert opened == wanted


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


def test_times_are_of_a_processor_and_a_runtime(bundle, monkeypatch):
    runtime, path = StitchRuntime(bundle), bundle / 'latencies.json'
    assert runtime.latencies() == {('fp32', i): ms for i, ms in MS.items()}
    assert [*runtime.front().items()] == [(('fp32', i), MS[i]) for i in IDS]
    (key,) = {*json.loads(path.read_text())} - {'of another device'}
    version = snnet_mm.runtime.runtime.import_module('onnxruntime').__version__
    for part in (processor(), f'{usable_cores()} cores', f'onnxruntime {version}'):
        assert part in key
    monkeypatch.setattr('snnet_mm.runtime.runtime.processor', lambda: 'Another CPU')
    assert StitchRuntime(bundle).latencies() != runtime.latencies()
    kept = json.loads(path.read_text())
    assert len(kept) == 3
    # Damaged, they are measured again.
    path.write_text(json.dumps(dict.fromkeys(kept, dict.fromkeys(kept[key], '1'))))
    assert all(ms > 0 for ms in StitchRuntime(bundle).latencies().values())


def test_a_bundle_with_scores_is_ranked_by_them(bundle):
    path = bundle / 'manifest.json'
    manifest = json.loads(path.read_text())
    manifest['ranked_by'] = dict(metric='rmse', higher_is_better=False)
    # A stitch without a score is never chosen: the least budget is another's.
    for stitch, found in zip(manifest['stitches'], ({}, 1, 2), strict=True):
        stitch['metrics'] = found and dict(rmse=found)
    path.write_text(json.dumps(manifest))
    assert StitchRuntime(bundle).set_budget('1G') == 2
    with pytest.raises(ValueError, match='stitch 2 in fp32') as refused:
        StitchRuntime(bundle).set_budget('0.000001G')
    least = re.search(r'at least (\S+G)', str(refused.value))[1]
    assert StitchRuntime(bundle).set_budget(least) == 2
    for stitch in manifest['stitches']:  # without any score, more FLOPs are better
        stitch['metrics'] = {}
    path.write_text(json.dumps(manifest))
    flops = {stitch['id']: stitch['flops'] for stitch in manifest['stitches']}
    assert StitchRuntime(bundle).set_budget('1G') == max(flops, key=flops.get)


def write_verified(bundle, lost, factor):
    """Give stitches the mIoU 40, 42 and 43; files what they lost, and intervals.

    Times of files in int8 are a factor of :data:`MS`.
    """
    path = bundle / 'manifest.json'
    manifest = json.loads(path.read_text())
    manifest['ranked_by'] = dict(metric='mIoU', higher_is_better=True)
    lost = lost | {('fp32', i): (0, [0, 0]) for i in IDS}
    for stitch, score in zip(manifest['stitches'], (40, 42, 43), strict=True):
        stitch['metrics'] = dict(mIoU=score)
        for file in stitch['files']:
            loss, interval = lost.get((file['precision'], stitch['id']), (None, None))
            about = dict(on='val', images=9, metric='mIoU', pytorch=score, lost=loss)
            about |= dict(value=score - (loss or 0), interval=interval, ms=2)
            about |= dict(pytorch_ms=4, metrics={})
            file['verified'] = None if loss is None else about
    path.write_text(json.dumps(manifest))
    assert StitchRuntime(bundle).latencies().keys() == lost.keys()
    path = bundle / 'latencies.json'
    times = {
        path_of(bundle, f'stitch_{i}_64x64_{precision}.onnx').name: by * ms
        for precision, by in dict(fp32=1, int8=factor).items()
        for i, ms in MS.items()
    }
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), times)))
    return StitchRuntime(bundle)


@pytest.mark.parametrize('factor', [0.5, 2])
def test_of_equal_files_the_fastest_runs(bundle, factor):
    """In int8 stitch 2 is equal, 0 surely worse, and of 1 too little is known."""
    lost = {('int8', 0): (0.2, [-0.3, -0.1]), ('int8', 2): (0.2, [-0.5, 0.1])}
    runtime = write_verified(bundle, lost | {('int8', 1): (2, [-5, 1])}, factor)
    best = 'int8' if factor < 1 else 'fp32'
    within = {0: 'fp32', 2: best, 1: 'fp32'}
    if factor < 1:  # stitch 2 in int8 is as fast as stitch 0
        within.pop(0)
    for stitch, precision in within.items():
        assert runtime.set_budget(f'{1.001 * MS[stitch]}ms') == stitch
        assert runtime.active_precision == precision
    runtime.hold(fps=1000 / 39)
    assert (runtime.active_stitch, runtime.active_precision) == (2, best)


def test_a_budget_in_flops_times_nothing(bundle, monkeypatch):
    runtime = write_verified(bundle, {('int8', 2): (0.2, [-0.5, 0.1])}, 2)
    monkeypatch.delattr(StitchRuntime, '_read_latencies')
    flops = runtime.stitches[2]['flops']
    assert runtime.set_budget(f'{1.001 * flops / 1e9:.9f}G') == 2
    assert runtime.active_precision == 'int8'


def test_a_stitch_and_its_precision_are_chosen_at_once(bundle, monkeypatch):
    """Of three stitches with mIoU 40, 42 and 43, int8 loses 0.1, 3 and an unknown."""
    lost = {('int8', 0): (0.1, None), ('int8', 2): (3, None)}
    runtime = write_verified(bundle, lost, 0.5)
    assert (runtime.active_stitch, runtime.active_precision) == (1, 'fp32')
    for budget, found in {
        '5ms': (0, 'int8'), '19ms': (0, 'fp32'), '20ms': (2, 'fp32'),
        '40ms': (1, 'fp32'),
    }.items():  # fmt: skip
        assert runtime.set_budget(budget) == found[0]
        assert (runtime.active_stitch, runtime.active_precision) == found
    (image,), ran, session = smooth_images(SIZES[:1]), [], runtime._session
    monkeypatch.setattr(runtime, '_session', lambda k: ran.append(k) or session(k))
    masks = []
    for precision in ('fp32', 'int8'):
        runtime.set_stitch(0, precision)
        masks.append(runtime(image))
        assert ran[-1] == (precision, 0)
    assert (masks[0] != masks[1]).mean() < 0.3
    with pytest.raises(ValueError, match="precision='int8' is invalid"):
        runtime.set_stitch(1, 'int8')
    quantised = StitchRuntime(bundle, precision='int8')
    assert quantised.latencies().keys() == {('int8', i) for i in IDS}


def test_a_batch_by_another_stitch_and_in_int8(bundle):
    """A stitch of a batch is not kept; in int8 the scales are of one image."""
    runtime, images = StitchRuntime(bundle), [*smooth_images(SIZES)]
    found = runtime.predict_batch(images, stitch=0)
    assert runtime.active_stitch == 1
    runtime.set_stitch(0)
    for mask, image in zip(found, images, strict=True):
        assert_array_equal(mask, runtime(image))
    assert_batches(StitchRuntime(bundle, precision='int8'), [1] * 6)


def test_a_held_rate_counts_the_images_of_a_batch(bundle, monkeypatch):
    """Batches of four in 100 ms are of 25 ms; at 25 ms stitch 2 of 20 ms runs."""
    runtime, clock = StitchRuntime(bundle), count(step=0.1)
    runtime.hold(fps=40)
    times = []
    monkeypatch.setattr(runtime._controller, 'update', times.append)
    monkeypatch.setattr('time.perf_counter', lambda: next(clock))
    runtime.predict_batch([*smooth_images(SIZES[:1])] * 4)
    assert times == pytest.approx([25])


def test_switching_while_another_thread_predicts(bundle):
    runtime = StitchRuntime(bundle, threads=1, sessions=1)
    (image,) = smooth_images(SIZES[1:2])
    wanted, done, faults = {}, threading.Event(), []
    for stitch in IDS:
        runtime.set_stitch(stitch)
        wanted[stitch] = runtime(image).tobytes()
    assert len(set(wanted.values())) == 3

    def switch():
        try:
            while not done.is_set():
                for stitch, fps in {0: 60, 2: 30, 1: None}.items():
                    runtime.set_stitch(stitch)
                    runtime.hold(fps)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=switch) for _ in range(2)]
    for thread in threads:
        thread.start()
    found = {runtime(image).tobytes() for _ in range(30)}
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert found <= set(wanted.values())
    assert len(found) > 1


@pytest.mark.parametrize(
    ('image', 'message'),
    [
        (np.zeros((60, 64, 3), np.uint8), 'left to the caller: CenterCrop'),
        (np.zeros((64, 64, 3)), r'float64.*\(H, W, 3\)'),
        (np.zeros((0, 64, 3), np.uint8), r'uint8 \(0, 64, 3\).*not empty'),
    ],
)
def test_images_that_are_not_taken(bundle, image, message):
    path = bundle / 'manifest.json'
    manifest = json.loads(path.read_text())
    manifest['caller']['before'].insert(0, dict(step='CenterCrop', crop_size=224))
    path.write_text(json.dumps(manifest))
    runtime = StitchRuntime(bundle)
    assert runtime(np.zeros((64, 64, 3), np.uint8)).shape == (64, 64)
    with pytest.raises(ValueError, match=message):
        runtime(image)


def test_the_program_of_the_page(bundle, tmp_path, monkeypatch, capsys):
    page = (ROOT / 'docs/how_to/deploy.md').read_text()
    pattern = re.compile(r'^```python\n(import numpy.*?)^```', re.DOTALL | re.MULTILINE)
    (program,) = pattern.findall(page)
    (image,) = smooth_images(SIZES[1:2])
    np.save(tmp_path / 'image.npy', image)
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(program.replace("'DIR'", repr(str(bundle))), found)
    runtime = StitchRuntime(bundle)
    runtime.set_budget('25ms')
    assert_array_equal(found['mask'], runtime(image))
    assert "2: 'fast[0:1] > slow[" in capsys.readouterr().out
