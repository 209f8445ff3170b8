import json
import sys
from types import SimpleNamespace

import pytest
import torch

TOOL = 'research/benchmark.py'


def test_parts_are_run_and_written(run_here, tmp_path, monkeypatch):
    part = SimpleNamespace(run=lambda: dict(ratio=2), __doc__='A ratio.\n\nOf two.')
    monkeypatch.setitem(sys.modules, 'benchmarks.one_pass', part)
    printed = run_here(TOOL, '--only', 'one-pass', '--out', tmp_path)
    assert 'one-pass: A ratio.\n' in printed
    written = json.loads((tmp_path / 'one-pass.json').read_text())
    assert written['figures']['ratio'] == 2
    assert set(written['machine']) >= {'processor', 'cores', 'torch', 'threads'}
    with pytest.raises(ValueError, match="only='x'; allowed: .*'one-pass'"):
        run_here(TOOL, '--only', 'x')


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a CUDA device')
@pytest.mark.parametrize('part', ['forward', 'one-pass', 'training'])
def test_parts_have_a_gpu_side(part, run_tool, tmp_path):
    run_tool(TOOL, '--only', part, '--out', tmp_path)
    written = (tmp_path / f'{part}.json').read_text()
    assert '"cpu"' in written
    assert '"cuda"' in written
