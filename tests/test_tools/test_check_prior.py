TOOL = 'research/check_prior.py'
PUBLISHED = 'tests/data/ade20k_setr_deit3_s_l.json'


def test_the_figures_in_the_docs(run_here):
    printed = run_here(TOOL, PUBLISHED, '--depths', 12, 24)
    assert 'prior alone: rank correlation 0.84; loses 0.47 mIoU on average' in printed
    assert 'FLOPs alone: rank correlation 0.73' in printed
    assert 'over 13 budgets' in printed
