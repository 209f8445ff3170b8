from dataclasses import replace

import pytest

from snnet_mm.stitching import StitchResult, StitchResults, best_per_budget_group


def result(stitch_id, gflops, score, kind='FS', num_images=5):
    metrics = {'mIoU': score}
    return StitchResult(
        stitch_id, kind, 'route', gflops * 10**9, 1, metrics, num_images=num_images
    )


@pytest.fixture
def results():
    """Anchors of 0 and 100 G; groups are ten wide: 0-10, 10-20, ..."""
    stitches = [
        result(0, 0, 10, 'anchor'),
        result(1, 100, 20, 'anchor'),
        result(2, 1, 30),
        result(3, 9, 40),
        result(4, 8, 40),
        result(5, 31, 5),
        result(6, 39, 7),
        result(7, 95, 90),
        result(8, 96, 80),
    ]
    return StitchResults(stitches, 'mIoU', True, (64, 64))


def test_the_best_of_every_group_and_the_anchors(results):
    assert best_per_budget_group(results, 1) == (0, 1, 3, 6, 7)
    assert best_per_budget_group(results, 2) == (0, 1, 3, 4, 5, 6, 7, 8)
    assert best_per_budget_group(results, 9) == tuple(range(9))


def test_lower_may_be_better(results):
    lower = replace(results, higher_is_better=False)
    assert best_per_budget_group(lower, 1) == (0, 1, 5)


@pytest.mark.parametrize('keep', [0, -1])
def test_keep_must_be_positive(results, keep):
    with pytest.raises(ValueError, match=f'keep={keep}; allowed is 1'):
        best_per_budget_group(results, keep)


def test_screened_results_count_for_nothing(results):
    full = replace(
        results, stitches=[result(i, 10 * i, 50 - i, num_images=100) for i in (0, 3, 6)]
    )
    both = results.updated_by(full)
    assert [r.id for r in both.stitches] == list(range(9))
    assert [r.id for r in both.complete] == [0, 3, 6]
    assert both.scores() == {0: 50, 3: 47, 6: 44}
    assert both.front() == [0]
    assert both.rank_correlation() == pytest.approx(-1)
