from dataclasses import replace

import pytest

from snnet_mm.stitching import Cost, CostTable, StitchResults, TwoWaySpace

TOOL = 'analysis_tools/check_prior.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_the_figures_in_the_docs(run_here):
    printed = run_here(TOOL, PUBLISHED, '--depths', 12, 24, '--evaluate', 24, 32)
    assert 'the prior: rank correlation 0.84, loses 0.47 mIoU on average' in printed
    assert 'FLOPs alone: rank correlation 0.73' in printed
    assert 'over 13 budgets' in printed
    words = 'evaluates 24 of 134 stitches: loses 0.09 mIoU on average and 0.75 at most'
    assert words in printed


def test_the_metric_of_results(run_here, tmp_path):
    space = TwoWaySpace([2, 2])
    costs = CostTable({s.id: Cost(s.id + 1, 1) for s in space}, (8, 8))
    metrics = {s.id: dict(mIoU=1.0, aAcc=s.id / 2) for s in space}
    results = StitchResults.collect(space, costs, metrics)
    results.save(path := tmp_path / 'stitches.json')
    args = (TOOL, path, '--depths', 2, 2)
    assert 'FLOPs alone: rank correlation nan' in run_here(*args)
    assert 'FLOPs alone: rank correlation 1.00' in run_here(*args, '--metric', 'aAcc')
    replace(results, stitches=results.stitches[:1]).save(path)
    with pytest.raises(ValueError, match=r'results=\[1, 2, 4'):
        run_here(*args)
