"""Metrics of files: those of what the runtime predicts for the image files."""

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from labelled_folders import write
from PIL import Image
from small import SHORT, small

from snnet_mm.exports import ExportRequest, StitchExporter
from snnet_mm.exports.description import describe_input
from snnet_mm.exports.graph import PredictionGraph
from snnet_mm.exports.normalization import normalization
from snnet_mm.exports.verification import evaluate, loses
from snnet_mm.runtime.image_io import list_image_files, read_image
from snnet_mm.runtime.steps import Steps

pytestmark = pytest.mark.filterwarnings('ignore')
LOAD = dict(type='LoadImageFromFile')
NORMALIZE = dict(type='Normalize', mean=[120.0, 90.0, 100.0], std=[60.0, 50.0, 70.0])
KEEP_RATIO = dict(type='Resize', scale=(96, 64), keep_ratio=True)
EDGE = dict(type='mmpretrain.ResizeEdge', scale=70, edge='short', backend='pillow')
CROP = dict(type='CenterCrop', crop_size=64)
SIZES = (64, 96), (96, 64), (80, 120), (64, 96)  # of the second, mm runs another


def verified(cfg, model, size):
    """Return what is found of a graph, and what the runtime predicts, by file."""
    model.data_preprocessor.eval()
    graph = PredictionGraph(model, size, normalization(cfg)._asdict()).eval()
    file = SimpleNamespace(path=SimpleNamespace(name='a'), open=lambda: graph)
    file.format, file.precision = 'onnx', 'fp32'
    steps = Steps(describe_input(cfg, model, size))
    assert steps.left == []
    metrics = evaluate(cfg, model, [file], steps, ExportRequest((0,), verify_on='val'))
    assert file.verified['pytorch'] == metrics[file.verified['metric']]
    root = cfg.val_dataloader.dataset.data_root + '/images'
    with torch.no_grad():
        run = lambda x: [graph(torch.from_numpy(x)).numpy()]  # noqa: E731
        found = {
            image.stem: steps.predict(run, [read_image(image.path)])[0]
            for image in list_image_files(root, 'elsewhere')
        }
    return file, found


def data_of(cfg, root, steps, **dataset):
    """Let a toy config read files of a folder through the steps of a pipeline."""
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline = [LOAD, *deepcopy(steps), *dataset.pop('load', ()), pipeline[-1]]
    dataset |= dict(data_root=str(root), pipeline=pipeline)
    cfg.test_dataloader.update(batch_size=1, num_workers=0, persistent_workers=False)
    cfg.test_dataloader.dataset = dataset
    cfg.val_dataloader, cfg.val_evaluator = cfg.test_dataloader, cfg.test_evaluator


def write_maps(root, highest, dtype=np.uint8):
    """Write images of several sizes, and maps that depend on what they show."""
    for i, (height, width) in enumerate(SIZES):
        write(root / f'images/{i}.png', (height, width))
        maps = np.arange(height)[:, None] * np.arange(width) // 7 % highest + 1
        write(root / f'maps/{i}.png', maps.astype(dtype))


def truth(root, name):
    return np.asarray(Image.open(root / f'maps/{name}.png'))


@pytest.mark.parametrize(
    ('steps', 'resized'), [([KEEP_RATIO], 1), ([EDGE, CROP, NORMALIZE], 0)]
)
def test_masks_of_files_in_portrait_and_landscape(
    short_model, tmp_path, steps, resized
):
    pytest.importorskip('mmpretrain')
    write_maps(tmp_path, 4)
    cfg, _ = short_model()
    folders = dict(img_path='images', seg_map_path='maps')
    classes = 'sky', 'ground', 'disk', 'square', 'triangle'
    data_of(
        cfg, tmp_path, steps, type='BaseSegDataset', data_prefix=folders,
        img_suffix='.png', seg_map_suffix='.png', load=[dict(type='LoadAnnotations')],
        metainfo=dict(classes=classes, palette=[(i, i, i) for i in range(5)]),
    )  # fmt: skip
    if NORMALIZE in steps:
        cfg.model.data_preprocessor.update(mean=None, std=None, bgr_to_rgb=False)
    size = (64, 64) if CROP in steps else (64, 96)
    model = short_model(cfg)[1]
    file, masks = verified(cfg, model, size)
    above, below = np.zeros(5), np.zeros(5)
    for name, mask in masks.items():
        for k in range(5):
            own, right = mask == k, truth(tmp_path, name) == k
            above[k] += (own & right).sum()
            below[k] += (own | right).sum()
    wanted = 100 * np.nanmean(above[below > 0] / below[below > 0])
    assert (above > 0).sum() > 1
    found = file.verified
    assert found['value'] == pytest.approx(wanted, abs=0.01)
    assert (found['images'], found['resized']) == (4, resized)
    if not resized:
        assert found['value'] == pytest.approx(found['pytorch'], abs=0.02)


def test_depths_of_files(tmp_path, build):
    write_maps(tmp_path, 9, np.uint16)
    cfg = small('depth')
    cfg.test_evaluator.update(min_depth=0.001, max_depth=10)
    data_of(
        cfg, tmp_path, [dict(KEEP_RATIO, scale=(64, 64), keep_ratio=False), NORMALIZE],
        type='NYUDataset', load=[dict(type='LoadDepthMap', depth_rescale_factor=1)],
        data_prefix=dict(img_path='images', depth_map_path='maps'),
        img_suffix='.png', depth_map_suffix='.png',
    )  # fmt: skip
    cfg.model.data_preprocessor.update(mean=None, std=None, bgr_to_rgb=False)
    model = build(cfg)
    file, depths = verified(cfg, model, (64, 64))
    errors = []
    for name, depth in depths.items():
        off = depth.clip(0.001, 10) - truth(tmp_path, name)
        errors.append(np.sqrt((off**2).mean()))
    assert file.verified['metric'] == 'RMSE'
    assert file.verified['value'] == pytest.approx(np.mean(errors), rel=1e-4)
    assert file.verified['value'] == pytest.approx(file.verified['pytorch'], rel=1e-4)


def test_labels_of_files(tmp_path, build):
    pytest.importorskip('mmpretrain')
    for i in range(12):
        name = 'abc'[i % 3]
        write(tmp_path / f'images/{name}/{i}.png', (70 + i, 90 - 2 * i))
    cfg = small('cls')
    steps = [EDGE, CROP, NORMALIZE]
    data_of(cfg, tmp_path, steps, type='CustomDataset', data_prefix='images')
    cfg.model.data_preprocessor.update(mean=[0.1], std=[2.0], to_rgb=False)
    model = build(cfg)
    file, scores = verified(cfg, model, (64, 64))
    hits = [np.argmax(s) == 'abc'.index(name[0]) for name, s in scores.items()]
    assert file.verified['metric'] == 'accuracy/top1'
    assert file.verified['value'] == pytest.approx(100 * np.mean(hits), abs=0.01)
    assert file.verified['value'] == file.verified['pytorch']
    assert file.verified['resized'] == 0


@pytest.fixture
def logged(monkeypatch):
    """What exports log."""
    logged = []
    for part in ('exporter', 'verification'):
        to = f'snnet_mm.exports.{part}.print_log'
        monkeypatch.setattr(to, lambda text, **_: logged.append(text))
    return logged


def test_graph_that_loses_by_resizing_is_kept_with_a_remark(logged):
    found = dict(lost=3.0, metric='mIoU', value=40.0, pytorch=43.0, images=4)
    request = ExportRequest((0,), verify_on='val')
    file = SimpleNamespace(format='onnx', precision='fp32')
    file.verified = dict(found, resized=0)
    with pytest.raises(ValueError, match='at least 3.0, what stitch 7 loses as onnx'):
        loses(7, file, (64, 96), request)
    file.verified = dict(found, resized=2)
    assert not loses(7, file, (64, 96), request)
    (said,) = logged
    assert said.startswith('2 of 4 images are resized to 64x96')
    file.precision = 'int8'
    assert loses(7, file, (64, 96), request)


def test_export_says_which_steps_are_left(
    short_model, tmp_path, logged, toy_cfg, monkeypatch
):
    cfg = toy_cfg(sizes=SHORT)
    step = dict(type='FixedCrop', rows=(0, 64), cols=(0, 64))
    cfg.test_dataloader.dataset.pipeline.insert(-1, step)
    exporter = StitchExporter(cfg, short_model(cfg)[1], tmp_path)
    with pytest.raises(ValueError, match="verify-on='val' .*FixedCrop"):
        exporter.export_stitch(0, ['onnx'], verify_on='val')
    monkeypatch.setattr(exporter, '_write_all', lambda *_: 1 / 0)
    for formats, said in ((['onnx'], True), (['mm'], False)):
        logged.clear()
        with pytest.raises(ZeroDivisionError):
            exporter.export_stitch(0, formats)
        printed = 'run FixedCrop of the test pipeline' in ' '.join(logged)
        assert printed == said
