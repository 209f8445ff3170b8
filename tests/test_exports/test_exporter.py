import json
import math
from pathlib import Path

import pytest
import torch
from manifests import path_of
from narrow_toy import SHORT
from old_torch import writes_onnx
from safetensors import safe_open
from torch.testing import assert_close

import snnet_mm
from snnet_mm.costs import cost_table
from snnet_mm.evaluation import PerStitchBN
from snnet_mm.exports import StitchExporter, load_export
from snnet_mm.exports.comparison import check_parity
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch
from snnet_mm.stitching import StitchResults

onnx = pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')

MEAN = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1)
STD = torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1)


def read_places(path):
    """Where the weights of a graph lie, by name: file, offset and length."""
    places = {}
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if place := {entry.key: entry.value for entry in tensor.external_data}:
            numbers = int(place['offset']), int(place['length'])
            places[tensor.name] = place['location'], *numbers
    return places


# Tracing takes its time for every block: depths 2 and 3, of which stitch 2 runs one
# and one. Ids are anchors 0 and 1, FS 2, SF 4.
WINDOWS = dict(window_size=3, global_blocks=(0,), decomposed_rel_pos=True)
CASES = [
    pytest.param(
        dict(abs_pos_embed=False, rel_pos_bias=True, with_cp=True),
        marks=pytest.mark.slow,
    ),
    dict(cls_token=False, **WINDOWS),
]


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
    assert manifest['outputs'][0]['shape'] == ['batch', 6, 40, 56]
    source = str(Path(snnet_mm.__file__).parent).encode()
    for path in tmp_path.glob('stitch_2_*'):
        assert source not in path.read_bytes()


@writes_onnx
def test_a_bundle_stores_every_weight_once(toy_cfg, build, logits, tmp_path):
    cfg = toy_cfg(sizes=SHORT)
    model = build(cfg)
    ids = (0, 1, 2)
    # Stitch 0 has batch norm statistics of its own.
    mixed = {k: v.clone() for k, v in model.state_dict().items() if 'running' in k}
    statistics = dict.fromkeys(ids, mixed)
    statistics[0] = {name: 0.5 + value.abs() for name, value in mixed.items()}
    PerStitchBN(model, statistics).attach()
    manifest = StitchExporter(cfg, model, tmp_path).export_bundle(ids)
    assert manifest == json.loads((tmp_path / 'manifest.json').read_text())

    images = 255 * torch.rand(3, 3, 64, 64)
    used = {}
    for i in ids:
        path = path_of(tmp_path, f'stitch_{i}_64x64_fp32.onnx')
        set_stitch(model, i)
        wanted = logits(model, (images - MEAN) / STD)
        assert_close(load_export(path)(images), wanted, rtol=1e-4, atol=1e-4)
        used[i] = read_places(path)

    # A name has one place, in all graphs, and a place one name.
    places = {}
    for weights in used.values():
        for name, place in weights.items():
            assert places.setdefault(name, place) == place
    assert len(set(places.values())) == len(places)
    weights = path_of(tmp_path, 'weights.safetensors')
    assert {location for location, _, _ in places.values()} == {weights.name}
    for name, sharing in (
        ('backbone.anchors.0.pos_embed', {0, 2}),
        ('backbone.anchors.0.blocks.0.norm1.weight', {0, 2}),
        ('backbone.anchors.0.blocks.0.attn.qkv.weight.T', {0, 2}),
        ('backbone.anchors.1.blocks.2.mlp.fc2.weight.T', {1, 2}),
        ('backbone.stitching_layers.0to1_0.weight.T', {2}),
        ('decode_head.conv_seg.weight', {0, 1, 2}),
        ('decode_head.up_convs.0.0.conv.weight', {0}),
        ('decode_head.up_convs.0.0.conv.weight@2', {1, 2}),
    ):
        assert {i for i in ids if name in used[i]} == sharing, name
    # What is stored is what each part needs once.
    size = weights.stat().st_size
    stored = sum(length for _, _, length in places.values())
    sum_of_graphs = sum(length for w in used.values() for _, _, length in w.values())
    assert stored < size < stored + 150 * len(places)
    assert sum_of_graphs > 1.2 * stored
    with safe_open(weights, 'pt') as file:
        merged = file.get_tensor('backbone.stitching_layers.0to1_0.weight.T')
    layer = model.backbone.stitching_layers['0to1_0'].merged()
    assert torch.equal(merged, layer.weight.T)


def test_the_manifest_tells_costs_metrics_and_how_to_feed(toy_cfg, build, tmp_path):
    cfg = toy_cfg()
    model = build(cfg)
    cfg.data_preprocessor = cfg.model.pop('data_preprocessor')
    model.dataset_meta = dict(classes=('a', 'b'))
    costs, space = cost_table(model), model.backbone.space
    stitch = dict(id=3, kind='FS', route='fast[0:2] > slow[4:5]', metrics=dict(mIoU=7))
    stitch['left_out'] = []
    stitch |= dict(flops=costs[3].flops, params=costs[3].params)
    stitch |= dict(segments=[['fast', 0, 2], ['slow', 4, 5]])
    measured = {3: dict(mIoU=7, mAcc=math.nan), 1: dict(mIoU=8, mAcc=9)}
    results = StitchResults.collect(space, costs, measured)
    exporter = StitchExporter(cfg, model, tmp_path, results=results)
    exporter.export_stitch(3, ['mm', 'safetensors'])
    manifest = json.loads((tmp_path / 'manifest.json').read_text())
    (found,) = manifest['stitches']
    files = found.pop('files')
    assert found == stitch
    assert manifest['ranked_by'] == dict(metric='mIoU', higher_is_better=True)
    assert manifest['classes'] == ['a', 'b']
    assert manifest['input']['mean'] == [123.675, 116.28, 103.53]
    assert manifest['compared_on'] == '2 test images'
    assert manifest['space'] == space.fingerprint
    origin = dict(stitch=3, route=stitch['route'], space=space.fingerprint)
    meta = torch.load(tmp_path / 'stitch_3.pth', weights_only=True)['meta']
    assert meta['exported_from'] == origin
    with safe_open(tmp_path / 'stitch_3.safetensors', 'pt') as file:
        assert file.metadata() == origin | dict(stitch='3')
    names = {file['name'] for file in files}
    assert names == {'stitch_3.pth', 'stitch_3.safetensors'}
    for file in files:
        assert file['bytes'] == (tmp_path / file['name']).stat().st_size
        assert file['max_difference'] < 1e-5
    exported = init_model(tmp_path / 'stitch_3.py', tmp_path / 'stitch_3.pth')
    assert torch.equal(exported.data_preprocessor.mean.cpu(), MEAN)


def test_an_export_that_differs_is_refused():
    wanted = torch.full((2, 3), 10.0)
    assert check_parity('onnx', 'stitch 5', wanted + 5e-4, wanted) == pytest.approx(
        5e-4, 1e-2
    )
    with pytest.raises(RuntimeError, match='onnx export of stitch 5 .* by 0.002'):
        check_parity('onnx', 'stitch 5', wanted + 2e-3, wanted)
    with pytest.raises(RuntimeError, match='mm export .* by 0.0005'):
        check_parity('mm', 'stitch 5', wanted + 5e-4, wanted)
    rows, moved = torch.zeros(2, 20, 4), torch.zeros(2, 20, 4)
    moved[0, 3:5] = 1
    check_parity('onnx', 'stitch 5', moved, rows, 'fp32', 0.05)
    with pytest.raises(RuntimeError, match='differs'):
        check_parity('onnx', 'stitch 5', moved, rows, 'fp32', 0.04)
    with pytest.raises(RuntimeError, match='by nan'):
        check_parity('onnx', 'stitch 5', wanted * torch.nan, wanted)


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
    with pytest.raises(ValueError, match='shape=None; allowed: height and width'):
        exporter.export_stitch(2, ['mm', 'onnx'])
    cfg.test_dataloader = None
    for found in ([224, 224], [32, 32]):
        manifest = StitchExporter(cfg, model, tmp_path).export_stitch(2)
        assert manifest['input']['shape'] == ['batch', 3, *found]
        assert manifest['compared_on'] == '2 noise'
        windows = dict(mode='slide', crop_size=(32, 32), stride=(16, 16))
        cfg.model.test_cfg = model.test_cfg = windows
