import json
import math

import pytest
import torch
from small import SHORT

from snnet_mm.costs import cost_table
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.comparison import check_parity
from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model

MEAN = [123.675, 116.28, 103.53]


def test_manifest_has_costs_metrics_and_how_to_feed(toy_cfg, build, tmp_path):
    cfg = toy_cfg()
    model = build(cfg)
    cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
    model.dataset_meta = dict(classes=('a', 'b'))
    costs, space = cost_table(model), model.backbone.space
    measured = {3: dict(mIoU=7, mAcc=math.nan), 1: dict(mIoU=8, mAcc=9)}
    results = costs.with_metrics(measured)
    exporter = StitchExporter(cfg, model, tmp_path, results=results)
    exporter.export_stitch(3, ['mm'])
    manifest = json.loads((tmp_path / 'manifest.json').read_text())
    (found,) = manifest['stitches']
    (file,) = found.pop('files')
    route = 'fast[0:2] > slow[4:5]'
    assert found == dict(
        id=3, kind='FS', route=route, metrics=dict(mIoU=7), left_out=[],
        flops=costs[3].flops, params=costs[3].params, branches=None, scale=1,
        segments=[['fast', 0, 2], ['slow', 4, 5]],
    )  # fmt: skip
    assert manifest['ranked_by'] == dict(metric='mIoU', higher_is_better=True)
    assert manifest['classes'] == ['a', 'b']
    assert manifest['input']['mean'] == MEAN
    assert manifest['compared_on'] == '2 test images'
    assert manifest['space'] == space.fingerprint
    assert manifest['largest_flops'] == costs[1].flops
    origin = dict(stitch=3, route=route, space=space.fingerprint)
    meta = torch.load(tmp_path / 'stitch_3.pth', weights_only=True)['meta']
    assert meta['exported_from'] == origin
    assert file['name'] == 'stitch_3.pth'
    assert file['bytes'] == (tmp_path / 'stitch_3.pth').stat().st_size
    assert file['max_difference'] < 1e-5
    exported = init_model(tmp_path / 'stitch_3.py', tmp_path / 'stitch_3.pth')
    mean = exported.data_preprocessor.mean.cpu().flatten()
    assert torch.equal(mean, torch.tensor(MEAN))


def test_active_stitch_stays(toy_cfg, build, tmp_path, monkeypatch):
    cfg = toy_cfg(sizes=SHORT)
    model = build(cfg)
    exporter = StitchExporter(cfg, model, tmp_path)
    set_stitch(model, 4)
    assert exporter.export_stitch(2)['stitches'][0]['id'] == 2
    assert model.backbone.active_stitch.id == 4
    monkeypatch.setattr(exporter, '_entry', 'not callable')
    with pytest.raises(TypeError, match='callable'):
        exporter.export_stitch(0)
    assert model.backbone.active_stitch.id == 4


def test_check_parity():
    wanted = torch.full((2, 3), 10.0)
    assert check_parity('a', wanted + 5e-4, wanted, 1e-4) == pytest.approx(5e-4, 1e-2)
    assert check_parity('a', wanted + 2, wanted, math.inf) == 2
    rows, moved = torch.zeros(2, 20, 4), torch.zeros(2, 20, 4)
    moved[0, 3:5] = 1  # two objects of forty
    check_parity('a', (moved,), (rows,), 1e-4, ranked=True)
    more = moved.clone()
    more[0, 5] = 1
    for got, right, tolerance, ranked in (
        (wanted + 2e-3, wanted, 1e-4, False),
        (wanted * torch.nan, wanted, math.inf, False),
        ((more,), (rows,), 1e-4, True),
    ):
        with pytest.raises(RuntimeError, match='export of a differs'):
            check_parity('a', got, right, tolerance, ranked)


def test_checkpoint_needs_no_size(toy_cfg, build, tmp_path):
    """Costs are of the first test image, resized and padded, else of the windows."""
    cfg = toy_cfg(sizes=SHORT)
    del cfg.model.data_preprocessor.size
    cfg.model.data_preprocessor.test_cfg = dict(size_divisor=32)
    pipeline = cfg.test_dataloader.dataset.pipeline
    pipeline.insert(-1, dict(type='Resize', scale=(90, 48), keep_ratio=False))
    model = build(cfg)
    exporter = StitchExporter(cfg, model, tmp_path)
    manifest = exporter.export_stitch(2)
    assert manifest['input']['shape'] == ['batch', 3, 64, 96]
    assert manifest['stitches'][0]['flops'] == cost_table(model, (64, 96))[2].flops
    with pytest.raises(ValueError, match='shape=None is invalid'):
        exporter.export_stitch(2, ['mm', 'onnx'])
    cfg.test_dataloader = None
    for found in ([224, 224], [32, 32]):
        manifest = StitchExporter(cfg, model, tmp_path).export_stitch(2)
        assert manifest['input']['shape'] == ['batch', 3, *found]
        assert manifest['compared_on'] == '2 noise'
        windows = dict(mode='slide', crop_size=(32, 32), stride=(16, 16))
        cfg.model.test_cfg = model.test_cfg = windows
