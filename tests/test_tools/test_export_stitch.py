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
NAME = 'setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64'
CONFIG = f'configs/toy/{NAME}.py'
MMSEG_TEST = Path(mmseg.__file__).parent / '.mim' / 'tools' / 'test.py'
RESULTS = 'stitches.json'
SCENES = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')


def export(run_here, checkpoint, results, out, config=CONFIG, stitch=14):
    """Export a stitch; the result of it, and what the tool printed."""
    args = ('--stitch-id', stitch, '--out', out, '--results', results)
    printed = run_here('export_stitch.py', config, checkpoint, *args)
    rows = json.loads(results.read_text())['stitches']
    return next(r for r in rows if r['id'] == stitch), printed


def test_the_tool_reports_what_it_wrote(run_here, untrained, tmp_path):
    out = tmp_path / 'out'
    result, printed = export(run_here, *untrained, out)
    (stitch,) = json.loads((out / 'manifest.json').read_text())['stitches']
    files, left_out = stitch.pop('files'), stitch.pop('left_out')
    assert left_out == []
    assert stitch.pop('branches') is None
    segments = [f'{name}[{begin}:{end}]' for name, begin, end in stitch.pop('segments')]
    assert ' > '.join(segments) == stitch['route']
    assert [f['format'] for f in files] == ['mm']
    assert stitch == {key: result[key] for key in stitch}
    assert re.search(r'14 │ fast\[0:\d\] > slow\[.* │ stitch_14\.pth ', printed)
    names = {p.name for p in out.iterdir()}
    assert names == {'manifest.json', 'stitch_14.py', 'stitch_14.pth'}


@pytest.mark.parametrize(('spelled', 'single'), [('14', True), ('0,2', False)])
def test_one_id_is_a_model_and_others_are_a_bundle(monkeypatch, spelled, single):
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import export_stitch

    def parse(shape):
        args = ('a.py', 'a.pth', '--out', 'out', '--stitch-id', spelled)
        monkeypatch.setattr(sys, 'argv', ['', *args, '--shape', shape])
        return export_stitch.parse_args()

    args = parse('126x182')
    assert (args.single, args.shape) == (single, (126, 182))
    assert args.format == ['mm' if single else 'onnx']
    for shape in ('126', '126x0', '126x'):
        with pytest.raises(ValueError, match=f"shape='{shape}' is .*such as 168x238"):
            parse(shape)


def test_what_is_left_out_stands_in_the_table(monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / 'tools')
    import export_stitch

    manifest = copy.deepcopy(MANIFEST)
    found = VERIFIED | dict(lost=1.9, value=None)
    left = dict(format='onnx', precision='int8', verified=found)
    manifest['stitches'][0]['left_out'] = [left]
    export_stitch.report(manifest, 'out', 0.5)
    printed = capsys.readouterr().out
    assert re.search(r'0 │ a route .* left out: onnx int8 .* NaN .* 41 │', printed)
    words = 'Left out: 1, by more than 0.5 worse; --tolerance 1.9 keeps all\n'
    assert words in printed
    assert 'weights.safetensors: 0.00 MB' in printed
    found['lost'] = None
    export_stitch.report(manifest, 'out', 0.5)
    assert '1, by more than 0.5 worse\n' in capsys.readouterr().out


@pytest.mark.slow
def test_our_test_tool_and_that_of_mmseg_score_it_alike(
    demo, run_tool, run_here, tmp_path
):
    config, *files = (
        demo[0] / 'elastic' / f for f in ('elastic.py', 'elastic.pth', RESULTS)
    )
    result, _ = export(run_here, *files, tmp_path, config, stitch=2)
    wanted, config = result['metrics']['mIoU'], tmp_path / 'stitch_2.py'
    args = (config, config.with_suffix('.pth'), *SCENES)
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
