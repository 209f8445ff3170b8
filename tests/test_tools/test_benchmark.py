import json

import pytest
import torch

TOOL = 'analysis_tools/benchmark.py'
GPU_PARTS = 'compile forward one-pass training'


@pytest.mark.slow
@pytest.mark.slow
def test_one_part_is_run_and_written(run_tool, tmp_path):
    done = run_tool(TOOL, '--only', 'switch', '--out', tmp_path)
    written = json.loads((tmp_path / 'switch.json').read_text())
    rows = written['figures']['switches']
    stitches = {'CamVid pair': 32, 'DeiT3 S/L': 134, 'DeiT3 B/L': 134}
    assert {r['model']: r['stitches'] for r in rows} == stitches
    assert all(r['tensor_operations'] == 0 < r['median_ms'] for r in rows)
    assert set(written['machine']) >= {'processor', 'cores', 'torch', 'threads'}
    assert 'DeiT3 S/L' in done.stdout
    assert [p.name for p in tmp_path.iterdir()] == ['switch.json']


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
@pytest.mark.parametrize('part', GPU_PARTS.split())
def test_parts_have_a_gpu_side(part, run_tool, tmp_path):
    run_tool(TOOL, '--only', part, '--out', tmp_path)
    written = (tmp_path / f'{part}.json').read_text()
    assert '"cpu"' in written
    assert '"cuda"' in written
