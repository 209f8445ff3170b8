import json
import math
from pathlib import Path

import pytest
import torch
from old_torch import writes_onnx
from toy import SHORT

import snnet_mm
from snnet_mm.costs import cost_table
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.comparison import check_parity
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch

onnx = pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')

MEAN = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1)


# Tracing takes its time for every block: depths 2 and 3, of which stitch 2 runs one
# and one. Ids are anchors 0 and 1, FS 2, SF 4.
WINDOWS = dict(window_size=3, global_blocks=(0,), decomposed_rel_pos=True)
CASES = [
    dict(abs_pos_embed=False, rel_pos_bias=True, with_cp=True),
    dict(cls_token=False, **WINDOWS),
]


@pytest.mark.slow
@pytest.mark.parametrize('anchor', CASES)
@writes_onnx
def test_graphs_for_images_of_another_size(
    toy_cfg, build, logits, compare_graphs, tmp_path, anchor
):
    cfg = toy_cfg(anchor, SHORT)
    exporter = StitchExporter(cfg, build(cfg), tmp_path, size=(40, 56))
    manifest = compare_graphs(exporter, 2, ['onnx'], logits)
    assert manifest['input']['shape'] == ['batch', 3, 40, 56]
    assert manifest['input']['channels'] == 'RGB'
    assert manifest['outputs'][0]['shape'] == ['batch', 5, 40, 56]
    source = str(Path(snnet_mm.__file__).parent).encode()
    for path in tmp_path.glob('stitch_2_*'):
        assert source not in path.read_bytes()


def test_the_manifest_tells_costs_metrics_and_how_to_feed(toy_cfg, build, tmp_path):
    cfg = toy_cfg()
    model = build(cfg)
    cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
    model.dataset_meta = dict(classes=('a', 'b'))
    costs, space = cost_table(model), model.backbone.space
    stitch = dict(id=3, kind='FS', route='fast[0:2] > slow[4:5]', metrics=dict(mIoU=7))
    stitch['left_out'] = []
    stitch |= dict(flops=costs[3].flops, params=costs[3].params)
    stitch |= dict(segments=[['fast', 0, 2], ['slow', 4, 5]], branches=None)
    measured = {3: dict(mIoU=7, mAcc=math.nan), 1: dict(mIoU=8, mAcc=9)}
    results = costs.with_metrics(measured)
    exporter = StitchExporter(cfg, model, tmp_path, results=results)
    exporter.export_stitch(3, ['mm'])
    manifest = json.loads((tmp_path / 'manifest.json').read_text())
    (found,) = manifest['stitches']
    files = found.pop('files')
    assert found == stitch
    assert manifest['ranked_by'] == dict(metric='mIoU', higher_is_better=True)
    assert manifest['classes'] == ['a', 'b']
    assert manifest['input']['mean'] == [123.675, 116.28, 103.53]
    assert manifest['compared_on'] == '2 test images'
    assert manifest['space'] == space.fingerprint
    assert manifest['largest_flops'] == costs[1].flops
    origin = dict(stitch=3, route=stitch['route'], space=space.fingerprint)
    meta = torch.load(tmp_path / 'stitch_3.pth', weights_only=True)['meta']
    assert meta['exported_from'] == origin
    (file,) = files
    assert file['name'] == 'stitch_3.pth'
    assert file['bytes'] == (tmp_path / 'stitch_3.pth').stat().st_size
    assert file['max_difference'] < 1e-5
    exported = init_model(tmp_path / 'stitch_3.py', tmp_path / 'stitch_3.pth')
    assert torch.equal(exported.data_preprocessor.mean.cpu(), MEAN)


def test_the_active_stitch_stays(toy_cfg, build, tmp_path, monkeypatch):
    cfg = toy_cfg(sizes=SHORT)
    model = build(cfg)
    exporter = StitchExporter(cfg, model, tmp_path)
    set_stitch(model, 4)
    assert exporter.export_stitch(2)['stitches'][0]['id'] == 2
    assert model.backbone.active_stitch.id == 4
    monkeypatch.setattr(exporter, '_manifest', 'not callable')
    with pytest.raises(TypeError, match='callable'):
        exporter.export_stitch(0)
    assert model.backbone.active_stitch.id == 4


def test_an_export_that_differs_is_refused():
    wanted = torch.full((2, 3), 10.0)
    found = check_parity('5.onnx', wanted + 5e-4, wanted, 1e-4)
    assert found == pytest.approx(5e-4, 1e-2)
    with pytest.raises(RuntimeError, match='export of 5.onnx .* by 0.002'):
        check_parity('5.onnx', wanted + 2e-3, wanted, 1e-4)
    assert check_parity('5.onnx', wanted + 2, wanted, math.inf) == 2
    rows, moved = torch.zeros(2, 20, 4), torch.zeros(2, 20, 4)
    moved[0, 3:5] = 1
    check_parity('5.onnx', (moved,), (rows,), 1e-4, ranked=True)
    moved[0, 5] = 1
    with pytest.raises(RuntimeError, match='differs'):
        check_parity('5.onnx', (moved,), (rows,), 1e-4, ranked=True)
    with pytest.raises(RuntimeError, match='by nan'):
        check_parity('5.onnx', wanted * torch.nan, wanted, math.inf)


def test_a_checkpoint_needs_no_size(toy_cfg, build, tmp_path):
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
