"""Stitches in other precisions, their metric, and files that are damaged."""

import itertools
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from killing import fork, wait
from manifests import path_of, plain, write_bundle
from old_torch import writes_onnx
from safetensors import safe_open
from small import toy

from snnet_mm.exports import FORMATS, ExportRequest, StitchExporter
from snnet_mm.exports.description import describe_input
from snnet_mm.exports.graph import PredictionGraph
from snnet_mm.exports.single import read_single
from snnet_mm.exports.verification import evaluate, lost_points, tolerance_for
from snnet_mm.models.init_model import init_model
from snnet_mm.runtime import bundle, read_manifest
from snnet_mm.runtime.steps import Steps
from snnet_mm.utils import load_config

onnx = pytest.importorskip('onnx')
pytest.importorskip('onnxruntime')


@pytest.fixture
def exporter(short_model, tmp_path):
    """Exports a toy model, with data of 3 images for each mode."""
    cfg, model = short_model()
    for mode in ('train', 'val', 'test'):
        dataset = cfg[f'{mode}_dataloader'].dataset
        (dataset.get('dataset') or dataset).num_scenes = 3
    return StitchExporter(cfg, model, tmp_path)


@torch.no_grad()
def test_files_see_the_padding_that_the_network_sees(short_model):
    """The preprocessor pads normalised images with zeros, which is the mean's place."""
    cfg, _ = short_model()
    cfg.model.data_preprocessor.test_cfg = dict(size=(96, 64))
    model = short_model(cfg)[1]
    steps = describe_input(cfg, model, (96, 64))
    graph = PredictionGraph(model, (96, 64), cfg.model.data_preprocessor)
    seen, network = dict(graph=[], network=[]), model.encode_decode

    def noted(name, run):
        return lambda *args: seen[name].append(run(*args)) or seen[name][-1]

    model.encode_decode = noted('network', network)
    open_ = lambda: noted('graph', graph)  # noqa: E731
    file = SimpleNamespace(path=Path('a'), open=open_, format='onnx')
    request = ExportRequest((0,), verify_on='val', limit=2)
    metrics = evaluate(cfg, model, [file], Steps(steps), request)
    assert seen['graph'][0].shape[2:] == (96, 64)
    graph, network = map(torch.cat, seen.values())
    torch.testing.assert_close(graph, network, rtol=1e-4, atol=1e-4)
    assert file.verified['metrics'] == metrics


@pytest.fixture
def spoil(monkeypatch):
    """Makes every prediction of some files another class than the model's."""

    def spoil(kind, word):
        format = FORMATS[kind]

        def load(path):
            run, sign = format.load(path), -1 if word in path.name else 1
            return lambda images: sign * run(images)

        monkeypatch.setitem(FORMATS, kind, replace(format, load=load))
        monkeypatch.setattr('snnet_mm.exports.exporter.check_parity', lambda *_: 0.0)

    return spoil


def test_fp32_file_that_loses_too_much_is_refused(exporter, tmp_path, monkeypatch):
    (tmp_path / '.export-killed').mkdir()

    def read_spoilt(path):
        cfg, single = read_single(path)
        single.decode_head.conv_seg.weight.data.neg_()
        return cfg, single

    monkeypatch.setattr('snnet_mm.exports.verification.read_single', read_spoilt)
    with pytest.raises(ValueError, match=r'tolerance=0\.5 is invalid.*mIoU') as error:
        exporter.export_stitch(0, ['mm'], verify_on='val')
    assert not [*tmp_path.iterdir()]
    # What the error asks for is enough.
    tolerance = float(re.search(r'at least ([\d.]+),', str(error.value))[1])
    exporter.export_stitch(0, ['mm'], verify_on='val', tolerance=tolerance)


@pytest.mark.slow
@writes_onnx
def test_int8_file_that_loses_too_much_is_left_out(exporter, tmp_path, spoil, caplog):
    """In int8 stitch 0 loses too much: fp32 stands in for it."""
    spoil('onnx', 'stitch_0_64x64_int8')
    options = dict(precisions=('int8',), verify_on='val', limit=2)
    manifest = exporter.export_bundle((0, 2), **options)
    assert 'pre-processing' not in caplog.text
    first, second = manifest['stitches']
    kept = {0: 'stitch_0_64x64_fp32.onnx', 2: 'stitch_2_64x64_int8.onnx'}
    for stitch in (first, second):
        assert [plain(f['name']) for f in stitch['files']] == [kept[stitch['id']]]
    (left,) = first['left_out']
    assert (left['format'], left['precision']) == ('onnx', 'int8')
    assert left['verified']['lost'] > 0.5
    assert second['left_out'] == []
    found = first['files'][0]['verified']
    assert (found['on'], found['images'], found['metric']) == ('val', 2, 'mIoU')
    # Equal within the rounding of the graph.
    assert found['value'] == pytest.approx(found['pytorch'], abs=0.1)
    assert found['lost'] == found['pytorch'] - found['value']
    low, high = found['interval']
    assert -0.2 < low <= -found['lost'] <= high < 0.2
    assert found['ms'] > 0 < found['pytorch_ms']
    assert manifest['ranked_by'] == dict(metric='mIoU', higher_is_better=True)
    assert first['metrics']['mIoU'] == found['pytorch']
    assert {plain(p.name) for p in tmp_path.glob('*.onnx')} == {*kept.values()}
    # Weights of the graph that is left out are left out, too.
    graphs = [onnx.load(p, load_external_data=False) for p in tmp_path.glob('*.onnx')]
    tensors = (tensor for graph in graphs for tensor in graph.graph.initializer)
    names = {t.name.partition('[')[0] for t in tensors if t.external_data}
    with safe_open(path_of(tmp_path, 'weights.safetensors'), 'np') as stored:
        assert {*stored.keys()} == names


def test_heads_that_are_no_graphs_are_refused(exporter, tmp_path, monkeypatch):
    lacks = 'snnet_mm.tasks.Segmentation.without_heads'
    monkeypatch.setattr(lacks, lambda *_: 'AHead: it loops')
    with pytest.raises(ValueError, match='AHead: it loops.*--format'):
        exporter.export_stitch(2, ['mm', 'onnx'])
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_killed_export_leaves_a_whole_bundle(exporter, tmp_path, monkeypatch):
    """The earlier one up to the new manifest, and nothing of it afterwards."""
    folders = [tmp_path / name for name in ('first', 'second')]
    for folder in folders:
        folder.mkdir()
        second = write_bundle(folder)
    out = exporter.out_dir = tmp_path / 'out'
    folders[1].joinpath('manifest.json').unlink()

    def write_all(ids, request, folder):
        shutil.copytree(folders[1], folder, dirs_exist_ok=True)
        return second

    monkeypatch.setattr(exporter, '_write_all', write_all)
    found, killed = [], True
    for n in itertools.count(1):
        shutil.copytree(folders[0], out)
        killed = wait(fork(lambda: exporter.export_bundle((0,)), out, n))
        manifest = read_manifest(out)
        for file in bundle.files_of(manifest):
            bundle.check_whole(out, file)
        found.append(manifest == second)
        if not killed:
            break
        shutil.rmtree(out)
    assert len(found) > 4
    assert found == sorted(found)
    names, *both = ({p.name for p in folder.iterdir()} for folder in (out, *folders))
    assert names == both[1] | {'manifest.json'}


@pytest.mark.parametrize(
    ('value', 'wanted', 'higher', 'lost'),
    [
        (0.400, 0.406, True, 0.6),
        (0.52, 0.50, False, 4),
        (40.6, 40.0, True, -0.6),
        (38.0999999, 40.0, True, 1.9000001),
        (math.nan, 40.0, True, math.inf),
        (math.nan, math.nan, True, 0),
    ],
)
def test_lost_points_and_the_tolerance_for_them(value, wanted, higher, lost):
    assert lost_points(value, wanted, higher) == pytest.approx(lost)
    least = tolerance_for(lost)
    assert least == lost or lost - 1e-6 <= least < lost + 0.0101


def test_files_of_detectors_are_evaluated(tmp_path):
    """The exact file has the metric of the model; other tasks: test_verification.py."""
    pytest.importorskip('mmdet')
    torch.manual_seed(0)
    loaders = ('val_dataloader', 'test_dataloader')
    options = {f'{loader}.dataset.num_scenes': 3 for loader in loaders}
    model = init_model(load_config(toy('det'), options), None, device='cpu')
    exporter = StitchExporter(model.cfg, model, tmp_path)
    manifest = exporter.export_stitch(0, ['mm'], verify_on='val')
    found = manifest['stitches'][0]['files'][0]['verified']
    assert (found['metric'], found['images']) == ('coco/bbox_mAP', 3)
    assert found['value'] == pytest.approx(found['pytorch'], rel=1e-4)
