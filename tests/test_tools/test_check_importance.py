import pytest

from snnet_mm.esta import importance_results
from snnet_mm.stitching import Cost, StitchTable, TwoWaySpace

TOOL = 'research/check_importance.py'
# Intervals of thirds: {0, 2, 3}, {5, 6}, {7, 8, 1}.
FLOPS = {0: 10, 2: 15, 3: 16, 5: 22, 6: 28, 7: 33, 8: 34, 1: 40}
MIOU = {0: 1.0, 2: 3.0, 3: 2.0, 5: 2.5, 6: 4.0, 7: 4.5, 8: 3.0, 1: 6.0}
SCORES = {0: 0.1, 2: 0.9, 3: 0.2, 5: 0.5, 6: 0.4, 7: 0.3, 8: 0.2, 1: 0.6}


@pytest.fixture
def files(tmp_path):
    space = TwoWaySpace([3, 3])
    costs = {i: Cost(f * 10**9, 1) for i, f in FLOPS.items()}
    costs = StitchTable.counted(costs, (8, 8), space)
    metrics = {i: dict(mIoU=m) for i, m in MIOU.items()}
    measured = costs.with_metrics(metrics)
    scored = importance_results(costs, SCORES, 3)
    paths = tmp_path / 'a.json', tmp_path / 'b.json'
    measured.save(paths[0])
    scored.save(paths[1])
    return paths


def test_choices_by_importance(run_here, files):
    printed = run_here(TOOL, *files, '--intervals', 3)
    # Deployed are 2, 5 and 1; the front is 0, 2, 6, 7, 1.
    assert '2 of 3 deployed stitches are on the measured front of 5' in printed
    assert f'drawn at random {2 / 3 + 1 / 2 + 2 / 3:.1f} would be' in printed
    assert 'they lose 0.50 mIoU to the best of their intervals on average' in printed
    chance = ((2 + 0 + 1) / 3 + (1.5 + 0) / 2 + (1.5 + 3 + 0) / 3) / 3
    assert f'and 1.50 at most; drawn at random {chance:.2f} on average' in printed
