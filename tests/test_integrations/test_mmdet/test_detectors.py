"""Inference, export and batch norm of detectors."""

import copy
import json
import runpy
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from old_torch import writes_onnx
from torch.testing import assert_close

from snnet_mm.apis import draw_prediction, init_inferencer, set_stitch
from snnet_mm.deploy import StitchExporter, run_onnx
from snnet_mm.deploy.graph import run_torch_export
from snnet_mm.evaluation import cost_table

pytestmark = pytest.mark.ops
mmdet = pytest.importorskip('mmdet')
DetDataSample = pytest.importorskip('mmdet.structures').DetDataSample


def sample_of_image():
    """What heads must know of an image (64, 64, 3)."""
    sizes = dict(img_shape=(64, 64), ori_shape=(64, 64), scale_factor=(1.0, 1.0))
    return DetDataSample(metainfo=sizes)


@torch.no_grad()
def detections(detector, image):
    """Boxes and scores of an image (64, 64, 3), without mmdet's pipeline."""
    rgb = np.ascontiguousarray(image[..., ::-1]).astype(np.float32)
    x = torch.from_numpy((rgb - 127.5) / 127.5).permute(2, 0, 1)[None]
    return detector.predict(x, [sample_of_image()])[0].pred_instances


def test_inference_and_drawing_of_each_stitch(detector, tmp_path):
    resize = dict(type='Resize', scale=(64, 64), keep_ratio=True)
    data = detector.cfg.test_dataloader.dataset
    data.pipeline = [dict(type='LoadImageFromFile'), resize, *data.pipeline]
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    inferencer = init_inferencer(detector)
    assert inferencer.model is detector
    seen, drawn = [], []
    for stitch in (0, 12):
        set_stitch(detector, stitch)
        wanted = detections(detector, image)
        for given in (tmp_path / 'a.png', image):
            (found,) = inferencer(given)['predictions']
            assert_close(torch.tensor(found['scores']), wanted.scores)
            assert_close(torch.tensor(found['bboxes']), wanted.bboxes)
            assert len(found['masks']) == len(wanted)
        seen.append(wanted.scores)
        drawn.append(draw_prediction(inferencer, image))
    assert not torch.equal(*seen)
    assert not np.array_equal(*drawn)
    # Without names their black ground goes; boxes and masks stay.
    unnamed = draw_prediction(init_inferencer(detector), image, with_labels=False)
    assert (drawn[-1] < 40).all(-1).sum() > (unnamed < 40).all(-1).sum()
    assert (unnamed != image).any()
    # Nothing is drawn on an image without detections; its channels keep their order.
    plain = np.full((64, 64, 3), (10, 60, 200), np.uint8)
    assert np.array_equal(draw_prediction(inferencer, plain, score_thr=1.1), plain)


@pytest.fixture
def exporter(detector, tmp_path):
    return StitchExporter(detector.cfg, detector, tmp_path / 'out')


def test_pyramids_are_exported_as_graphs(detector, exporter, tmp_path):
    manifest = exporter.export_stitch(12, ['onnx', 'torch-export'])
    set_stitch(detector, 12)
    images = 255 * torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        wanted = detector.extract_feat((images - 127.5) / 127.5)
    for run, suffix in ((run_onnx, 'onnx'), (run_torch_export, 'pt2')):
        path = tmp_path / 'out' / f'stitch_12.{suffix}'
        for a, b in zip(run(path, images), wanted, strict=True):
            assert_close(a, b, rtol=1e-4, atol=1e-4)
    # The heads go on from the graph's maps.
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    rgb = torch.from_numpy(image[..., ::-1].astype(np.float32)).permute(2, 0, 1)
    maps = run_onnx(tmp_path / 'out' / 'stitch_12.onnx', rgb[None])
    samples = [sample_of_image()]
    proposals = detector.rpn_head.predict(maps, samples)
    with torch.no_grad():
        (found,) = detector.roi_head.predict(maps, proposals, samples, rescale=True)
    assert_close(found.scores, detections(detector, image).scores, rtol=1e-3, atol=1e-4)
    assert [(o['name'], o['shape'][1:]) for o in manifest['outputs']] == [
        (f'level_{i}', [32, n, n]) for i, n in enumerate((16, 8, 4, 2))
    ]


@writes_onnx
def test_bundles_share_the_neck(detector, exporter, tmp_path):
    exporter.export_bundle([0, 12])
    manifest = json.loads((tmp_path / 'out' / 'manifest.json').read_text())
    costs = cost_table(detector.backbone, (64, 64))
    neck = sum(p.numel() for p in detector.neck.parameters())
    most = 4 * (costs[0].params + costs[12].params + neck)
    assert manifest['weights']['bytes'] < most


def test_a_stitch_alone_scores_the_same_in_mmdets_own_tool(
    detector, exporter, tmp_path, monkeypatch
):
    exporter.export_stitch(12, ['mm', 'safetensors'])
    cfg = copy.deepcopy(detector.cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches=[12])
    runner = Runner.from_cfg(cfg)
    runner.model.load_state_dict(detector.state_dict())
    wanted = runner.test()
    assert max(wanted.values()) > 0
    found, test = [], Runner.test
    monkeypatch.setattr(Runner, 'test', lambda self: found.append(test(self)))
    tool = Path(mmdet.__file__).parent / '.mim' / 'tools' / 'test.py'
    args = [str(tmp_path / 'out' / f'stitch_12.{kind}') for kind in ('py', 'pth')]
    args += ['--work-dir', str(tmp_path / 'alone')]
    monkeypatch.setattr(sys, 'argv', [str(tool), *args])
    runpy.run_path(str(tool), run_name='__main__')
    assert {f'stitch_12/{k}': v for k, v in found[0].items()} == wanted


def test_batch_norm_of_heads_is_recalibrated(det_cfg, build_detector, tmp_path):
    for head in (det_cfg.model.roi_head.bbox_head, det_cfg.model.roi_head.mask_head):
        head.norm_cfg = dict(type='BN')
    det_cfg.test_cfg = dict(type='StitchTestLoop', stitches=[0, 12])
    det_cfg.test_cfg.update(recalibrate_bn=4, out_dir=str(tmp_path / 'report'))
    runner = Runner.from_cfg(det_cfg)
    runner.model.load_state_dict(build_detector(det_cfg).state_dict())
    runner.test()
    statistics = torch.load(tmp_path / 'report' / 'bn_statistics.pth')
    first = 'roi_head.{}_head.{}.0.bn.running_mean'
    for key in (first.format('bbox', 'shared_convs'), first.format('mask', 'convs')):
        assert not torch.equal(statistics[0][key], statistics[12][key])
        assert statistics[0][key].abs().max() > 0
    # The mean in front of the first norm of the box head, by hand.
    detector, seen = runner.model, []
    set_stitch(detector, 12)
    conv = detector.roi_head.bbox_head.shared_convs[0].conv
    conv.register_forward_hook(lambda *a: seen.append(a[-1].mean(dim=(0, 2, 3))))
    batches = Runner.build_dataloader(det_cfg.train_dataloader, seed=runner.seed)
    with torch.no_grad():
        for batch, _ in zip(batches, range(2), strict=False):
            data = detector.data_preprocessor(batch, False)
            detector._run_forward(data, mode='predict')
    key = first.format('bbox', 'shared_convs')
    assert_close(statistics[12][key], torch.stack(seen).mean(dim=0))
