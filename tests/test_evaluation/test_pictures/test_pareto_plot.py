from dataclasses import replace

import pytest
from small_results import RESULTS, TURNED

from snnet_mm.evaluation import Baseline, plot_pareto
from snnet_mm.stitching import Setup


@pytest.fixture
def axes_of(drawn_axes, tmp_path):
    """Draw, and get the axes that were drawn on."""

    def draw(*args, **kwargs):
        plot_pareto(*args, tmp_path / 'pareto.svg', **kwargs)
        return drawn_axes.pop()

    return draw


def offsets(axes):
    return {
        c.get_label(): [tuple(p) for p in c.get_offsets().tolist()]
        for c in axes.collections
    }


def test_plot_pareto_lower_may_be_better(axes_of, tmp_path):
    axes = axes_of(RESULTS)
    (front,) = axes.lines
    assert front.get_xydata().tolist() == [[3, 0.9], [10, 0.6], [30, 0.5]]
    assert offsets(axes) == {
        'anchor (2)': [(3, 0.9), (30, 0.5)],
        'FS (1)': [(20, 0.8)],
        'SF (1)': [(10, 0.6)],
    }
    assert axes.get_xlabel() == 'GFLOPs at 32x48 (multiply-accumulates)'
    assert axes.get_ylabel() == 'RMSE (lower is better)'
    assert (tmp_path / 'pareto.svg').read_text().count('<svg') == 1


def test_plot_pareto_labels_fit_the_figure(axes_of):
    name = 'AMD EPYC 9V74 80-Core Processor, 1 thread, with words that go on and on'
    table = RESULTS.measured(
        Setup(name, 1, 'fp32'), {row.id: 1.0 for row in RESULTS.rows}
    )
    axes = axes_of(table, cost='latency')
    figure = axes.figure
    (lines,) = [axes.xaxis.label.get_window_extent()]
    assert figure.bbox.x0 <= lines.x0 < lines.x1 <= figure.bbox.x1
    assert name in axes.get_xlabel().replace('\n', ' ')


def test_plot_pareto_metrics_of_0_begin_at_0(axes_of):
    rows = [replace(row, metrics=dict(RMSE=0.0)) for row in RESULTS.rows]
    axes = axes_of(replace(RESULTS, rows=rows))
    assert axes.get_ylim() == (0, 1)
    assert [line.get_label() for line in axes.lines] == []  # a front of one point


def test_plot_pareto_draws_baselines_and_other_fronts(axes_of):
    axes = axes_of(
        RESULTS,
        baselines=[Baseline('fast alone', 2.5e9, 0.95)],
        others=[('higher', TURNED)],
        title='a ' * 100,
    )
    assert offsets(axes)['fast alone'] == [(2.5, 0.95)]
    other = axes.lines[1]
    assert other.get_label() == 'higher'
    assert other.get_xydata().tolist() == [[3, 0.9]]
    assert '\n' in axes.get_title()
