import json

import pytest

TOOL = 'analysis_tools/check_prior.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_the_figures_in_the_docs(run_here):
    printed = run_here(TOOL, PUBLISHED, '--depths', 12, 24, '--published')
    assert 'the prior: rank correlation 0.84, loses 0.47 mIoU on average' in printed
    assert 'FLOPs alone: rank correlation 0.73' in printed
    assert 'over 13 budgets' in printed


def test_all_stitches_are_wanted(run_here, tmp_path):
    path = tmp_path / 'figures.json'
    path.write_text(json.dumps(dict(stitches={0: dict(flops=1, mIoU=2)})))
    with pytest.raises(ValueError, match=r'lacks stitches \[1, 2, 3'):
        run_here(TOOL, path, '--depths', 3, 7, '--published')
