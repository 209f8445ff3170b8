import json
import os
import re
import subprocess
import sys
from pathlib import Path

import mmseg
import pytest
from old_torch import writes_onnx

ROOT = Path(__file__).parents[2]
NAME = 'setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64'
CONFIG = f'configs/toy/{NAME}.py'
MMSEG_TEST = Path(mmseg.__file__).parent / '.mim' / 'tools' / 'test.py'
SCENES = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')


@pytest.fixture(scope='module')
def exported(demo, run_tool, tmp_path_factory):
    """Stitch 14 of the demo's model: the folder and what the tool printed."""
    out = tmp_path_factory.mktemp('exported')
    checkpoint = demo[0] / NAME / 'iter_3.pth'
    args = ('--stitch-id', 14, '--out', out, '--results', demo[0] / 'stitches.json')
    args = (*args, '--format', 'mm', 'safetensors')
    done = run_tool('export_stitch.py', CONFIG, checkpoint, *args)
    return out, done.stdout


def result_of(demo):
    """The demo's result of stitch 14."""
    results = json.loads((demo[0] / 'stitches.json').read_text())['stitches']
    (result,) = [r for r in results if r['id'] == 14]
    return result


def test_the_tool_reports_what_it_wrote(demo, exported):
    out, printed = exported
    (stitch,) = json.loads((out / 'manifest.json').read_text())['stitches']
    result = result_of(demo)
    files = stitch.pop('files')
    segments = [f'{name}[{begin}:{end}]' for name, begin, end in stitch.pop('segments')]
    assert ' > '.join(segments) == stitch['route']
    assert {f['format'] for f in files} == {'mm', 'safetensors'}
    assert stitch == {key: result[key] for key in stitch}
    assert re.search(r'14 │ fast\[0:\d\] > slow\[.* │ stitch_14\.pth ', printed)
    names = {f'stitch_14.{suffix}' for suffix in ('py', 'pth', 'safetensors')}
    assert {p.name for p in out.iterdir()} == {'manifest.json', *names}


@pytest.mark.slow
def test_our_test_tool_and_that_of_mmseg_score_it_alike(
    demo, run_tool, exported, tmp_path
):
    wanted = result_of(demo)['metrics']['mIoU']
    config = exported[0] / 'stitch_14.py'
    args = (config, config.with_suffix('.safetensors'), *SCENES)
    run_tool('test.py', *args, '--work-dir', tmp_path / 'ours')
    # Another package's tool, in another folder; only custom_imports leads to ours.
    command = [sys.executable, MMSEG_TEST, config, config.with_suffix('.pth')]
    command += ['--work-dir', tmp_path / 'theirs', *SCENES]
    env = dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=str(ROOT))
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)
    for folder in ('ours', 'theirs'):
        (log,) = (tmp_path / folder).glob('*/2*.json')
        scores = json.loads(log.read_text())
        assert scores['mIoU'] == pytest.approx(wanted, abs=0.01)


@pytest.mark.slow
@writes_onnx
def test_a_bundle_is_one_command(demo, run_tool, tmp_path):
    pytest.importorskip('onnxruntime')
    checkpoint = demo[0] / NAME / 'iter_3.pth'
    args = ('--stitch-ids', '0', '--out', tmp_path)
    done = run_tool('export_stitch.py', CONFIG, checkpoint, *args)
    manifest = json.loads((tmp_path / 'manifest.json').read_text())
    assert [s['id'] for s in manifest['stitches']] == [0]
    shared = (tmp_path / 'weights.safetensors').stat().st_size
    assert manifest['weights'] == dict(name='weights.safetensors', bytes=shared)
    assert f'weights.safetensors: {shared / 1e6:.2f} MB' in done.stdout
