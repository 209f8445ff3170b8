import json
import re
from dataclasses import replace

import pytest

from snnet_mm.evaluation import Baseline, plot_pareto, write_pareto_page
from snnet_mm.evaluation import pareto_plot as module
from snnet_mm.evaluation.figures import new_figure
from snnet_mm.stitching import Cost, CostTable, Setup, StitchResults, TwoWaySpace

SPACE = TwoWaySpace((3, 7))
GFLOPS = {0: 3, 1: 30, 2: 20, 5: 10}
MS = {0: 9, 1: 8, 2: 4, 5: 6}
COSTS = CostTable(
    {i: Cost(g * 10**9, 5 * 10**6, MS[i]) for i, g in GFLOPS.items()},
    (32, 48),
    SPACE.fingerprint,
    Setup('a board', 2, 'float32'),
)
RMSE = {0: 0.9, 1: 0.5, 2: 0.8, 5: 0.6}
METRICS = {i: dict(RMSE=v, delta1=1 - v / 2) for i, v in RMSE.items()}
RESULTS = replace(StitchResults.collect(SPACE, COSTS, METRICS), higher_is_better=False)


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Draw, and get the axes that were drawn on."""
    drawn = []
    monkeypatch.setattr(
        module, 'new_figure', lambda *a: drawn.append(new_figure(*a)) or drawn[-1]
    )

    def draw(*args, **kwargs):
        plot_pareto(*args, tmp_path / 'pareto.png', **kwargs)
        (axes,) = drawn[-1].axes
        return axes

    return draw


def offsets(axes):
    return {
        c.get_label(): [tuple(p) for p in c.get_offsets().tolist()]
        for c in axes.collections
    }


def test_lower_may_be_better(axes_of):
    axes = axes_of(RESULTS)
    (front,) = axes.lines
    assert front.get_xydata().tolist() == [[3, 0.9], [10, 0.6], [30, 0.5]]
    assert offsets(axes) == {
        'anchor (2)': [(3, 0.9), (30, 0.5)],
        'FS (1)': [(20, 0.8)],
        'SF (1)': [(10, 0.6)],
    }
    assert axes.get_ylabel() == 'RMSE (lower is better)'


def test_the_axis_may_be_milliseconds(axes_of):
    axes = axes_of(RESULTS, cost='latency')
    (front,) = axes.lines
    assert front.get_xydata().tolist() == [[4, 0.8], [6, 0.6], [8, 0.5]]
    assert axes.get_xlabel() == 'ms at 32x48 (a board, batch 2, float32)'
    with pytest.raises(ValueError, match='hold no memory'):
        axes_of(RESULTS, cost='memory')


def test_baselines_and_other_fronts_are_drawn(axes_of):
    baseline = Baseline('fast alone', 2.5e9, 0.95)
    axes = axes_of(
        RESULTS,
        baselines=[baseline],
        others=[('higher', replace(RESULTS, higher_is_better=True))],
        title='a ' * 100,
    )
    assert offsets(axes)['fast alone'] == [(2.5, 0.95)]
    other = axes.lines[1]
    assert other.get_label() == 'higher'
    assert other.get_xydata().tolist() == [[3, 0.9]]
    assert '\n' in axes.get_title()


def data_of(path):
    (text,) = re.findall(r'^const data = (.*);$', path.read_text(), re.MULTILINE)
    return json.loads(text)


def test_the_page_holds_everything(tmp_path):
    path = tmp_path / 'pareto.html'
    write_pareto_page(
        RESULTS,
        path,
        baselines=[Baseline('fast alone', 2.5e9, 0.95)],
        others=[('</script><b>', replace(RESULTS, higher_is_better=True))],
    )
    data = data_of(path)
    by_id = {s['id']: s for s in data['stitches']}
    assert by_id[5] == dict(
        id=5,
        kind='SF',
        route='slow[0:3] > fast[1:3]',
        segments=[['slow', 0, 3], ['fast', 1, 3]],
        score=0.6,
        metrics=dict(RMSE=0.6, delta1=0.7),
        costs=dict(flops=10**10, latency=6, params=5 * 10**6),
    )
    assert data['fronts'] == dict(flops=[0, 5, 1], latency=[2, 5, 1], params=[1])
    assert data['anchors'] == dict(fast=3, slow=7)
    assert list(data['anchors']) == ['fast', 'slow']
    assert data['first'] == 'flops'
    assert data['baselines'] == [dict(label='fast alone', cost=2.5e9, score=0.95)]
    (other,) = data['others']
    assert other['label'] == '</script><b>'
    assert other['lines']['latency'] == [[4, 0.8], [9, 0.9]]


@pytest.mark.parametrize('ids', [(5,), (12, 3)])
def test_anchors_on_the_page_go_from_fast_to_slow(tmp_path, ids):
    space = TwoWaySpace((3, 7) if len(ids) == 1 else (2, 3, 4))
    flops = dict(zip(ids, (2, 3), strict=False))
    costs = CostTable({i: Cost(f, 1) for i, f in flops.items()}, (32, 48))
    results = StitchResults.collect(space, costs, {i: dict(mIoU=i) for i in ids})
    write_pareto_page(results, tmp_path / 'pareto.html')
    anchors = data_of(tmp_path / 'pareto.html')['anchors']
    names = ['fast', 'slow'] if len(ids) == 1 else ['anchor0', 'anchor1', 'anchor2']
    assert list(anchors) == names


def test_the_page_needs_nothing_else(tmp_path):
    path = tmp_path / 'pareto.html'
    write_pareto_page(RESULTS, path, 'latency', title='</script><img src=x>')
    page = path.read_text()
    assert set(re.findall(r'https?://[^\'"]*', page)) == {'http://www.w3.org/2000/svg'}
    assert page.count('</script>') == 1
    assert not re.search(r'<(link|img|script\s+src)', page)
    assert data_of(path)['first'] == 'latency'


def test_a_page_over_a_missing_cost_is_refused(tmp_path):
    with pytest.raises(ValueError, match='hold no memory'):
        write_pareto_page(RESULTS, tmp_path / 'pareto.html', 'memory')
    assert not list(tmp_path.iterdir())
