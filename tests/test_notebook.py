"""The notebook of the tutorials, run cell by cell."""

import json
from pathlib import Path

import matplotlib
import pytest

NOTEBOOK = Path(__file__).parents[1] / 'docs/tutorials/quickstart.ipynb'


@pytest.mark.slow
def test_quickstart_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use('agg')
    cells = json.loads(NOTEBOOK.read_text())['cells']
    namespace = {}
    for cell in cells:
        if cell['cell_type'] == 'code':
            # Fewer iterations: every step is run, whatever the scores.
            exec(''.join(cell['source']).replace('iters=150', 'iters=10'), namespace)
    rows = namespace['sn'].stitches(namespace['model'])
    flops = [row['costs']['flops'] for row in rows]
    assert len(rows) == 4
    assert flops[namespace['chosen']] <= flops[0] / 2
    assert namespace['half'].shape == namespace['whole'].shape == (64, 64)
