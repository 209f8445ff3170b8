import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mmseg
import pytest
from manifests import MANIFEST, VERIFIED

ROOT = Path(__file__).parents[2]
MMSEG_TEST = Path(mmseg.__file__).parent / '.mim' / 'tools' / 'test.py'


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import export_stitch

    return export_stitch


@pytest.fixture
def exported(run_here, narrow, tmp_path):
    """The folder of an exported stitch, and what the tool printed."""
    model = narrow / 'config.py', narrow / 'weights.pth'
    args = '--stitch-id', 2, '--results', narrow / 'stitches.json'
    return tmp_path, run_here('export_stitch.py', *model, *args, '--out', tmp_path)


def test_export_stitch_reports_what_it_wrote(exported):
    folder, printed = exported
    (stitch,) = json.loads((folder / 'manifest.json').read_text())['stitches']
    assert (stitch['id'], stitch['left_out']) == (2, [])
    assert stitch['metrics'] == dict(mIoU=14)
    assert re.search(r'2 │ fast\[0:1\] > slow\[.* │ stitch_2\.pth ', printed)
    names = {p.name for p in folder.iterdir()}
    assert names == {'manifest.json', 'stitch_2.py', 'stitch_2.pth'}


@pytest.mark.parametrize('spelled, single', [('14', True), ('0,2', False)])
def test_export_stitch_one_id_is_a_model_alone(tool, monkeypatch, spelled, single):
    """Others are a bundle."""
    args = '', 'a.py', 'a.pth', '--out', 'out', '--stitch-id', spelled
    monkeypatch.setattr(sys, 'argv', [*args, '--shape', '126x182'])
    args = tool.parse_args()
    assert (args.single, args.shape) == (single, (126, 182))
    assert args.format == ['mm' if single else 'onnx']


def test_export_stitch_report_names_what_is_left_out(tool, capsys):
    manifest = copy.deepcopy(MANIFEST)
    found = VERIFIED | dict(lost=1.9, value=None)
    left = dict(format='onnx', precision='int8', verified=found)
    manifest['stitches'][0]['left_out'] = [left]
    tool.report(manifest, 'out', 0.5)
    printed = capsys.readouterr().out
    assert re.search(r'0 │ a route .* left out: onnx int8 .* NaN .* 41 │', printed)
    words = 'Left out: 1, by more than 0.5 worse; --tolerance 1.9 keeps all\n'
    assert words in printed
    assert 'weights.safetensors: 0.00 MB' in printed
    words = 'from an image to its prediction, .*; 3 CPU thread.s., A processor'
    assert re.search(words, printed)


@pytest.mark.slow
def test_export_stitch_mmseg_scores_stitch_as_we_do(exported, run_here, tmp_path):
    config, weights = tmp_path / 'stitch_2.py', tmp_path / 'stitch_2.pth'
    run_here('test.py', config, weights, '--work-dir', tmp_path / 'ours')
    # Another package's tool, in another folder; only custom_imports leads to ours.
    command = [sys.executable, MMSEG_TEST, config, weights]
    command += ['--work-dir', tmp_path / 'theirs']
    env = dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=str(ROOT))
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    scores = []
    for folder in ('ours', 'theirs'):
        (log,) = (tmp_path / folder).glob('*/2*.json')
        scores.append(json.loads(log.read_text())['mIoU'])
    assert scores[0] == pytest.approx(scores[1], abs=0.01)
    assert scores[0] > 1
