import json
import math
import re
from dataclasses import replace

import pytest
from small_results import RESULTS, TURNED

from snnet_mm.evaluation import Baseline, write_pareto_page
from snnet_mm.stitching import Cost, CostTable, StitchResults, TwoWaySpace


def data_of(path):
    (text,) = re.findall(r'^const data = (.*);$', path.read_text(), re.MULTILINE)
    return json.loads(text)


def points(svg, kind):
    """Places of the points of a kind."""
    (group,) = re.findall(rf'<g id="stitches-{kind}">(.*?)</g>\s*</g>', svg, re.DOTALL)
    return [
        tuple(map(float, p)) for p in re.findall(r'<use .*x="(.*?)" y="(.*?)"', group)
    ]


def test_the_page_holds_everything(tmp_path):
    path = tmp_path / 'pareto.html'
    write_pareto_page(
        RESULTS,
        path,
        baselines=[Baseline('fast alone', 2.5e9, 0.95)],
        others=[('</script><b>', TURNED)],
    )
    data = data_of(path)
    stitch = data['stitches']['5']
    assert stitch['segments'] == [['slow', 0, 3], ['fast', 1, 3]]
    assert stitch['metrics'] == dict(RMSE=0.6, delta1=0.7)
    costs = [stitch[name] for name in ('kind', 'flops', 'latency', 'params')]
    assert costs == ['SF', 10**10, 6, 5 * 10**6]
    assert data['fronts'] == dict(flops=[0, 5, 1], latency=[2, 5, 1], params=[1])
    assert list(data['anchors'].items()) == [('fast', 3), ('slow', 7)]
    assert list(data['plots']) == list(data['axes']) == ['flops', 'params', 'latency']
    assert 'fast alone' in data['plots']['flops']
    assert 'fast alone' not in data['plots']['latency']
    assert all('&lt;/script&gt;&lt;b&gt;' in svg for svg in data['plots'].values())


@pytest.mark.parametrize('lost', [None, 0])
def test_points_are_in_the_order_of_their_ids(tmp_path, lost):
    """By its place among those of a kind a point is known as a stitch."""
    stitches = [
        replace(r, metrics=dict(RMSE=math.nan)) if r.id == lost else r
        for r in RESULTS.stitches
    ]
    write_pareto_page(replace(RESULTS, stitches=stitches), tmp_path / 'pareto.html')
    data = data_of(tmp_path / 'pareto.html')
    kinds = dict(anchor=[0, 1], FS=[2], SF=[5])
    if lost is not None:
        kinds['anchor'].remove(lost)
    assert data['kinds'] == kinds
    drawn = [r for r in RESULTS.stitches if r.id != lost]
    for cost in ('flops', 'latency'):
        svg = data['plots'][cost]
        places = {}
        for kind, ids in kinds.items():
            places |= dict(zip(ids, points(svg, kind), strict=True))
        by_cost = sorted(drawn, key=lambda r: getattr(r, cost))
        assert sorted(places, key=lambda i: places[i][0]) == [r.id for r in by_cost]
        # Heights in a picture grow downwards.
        by_score = sorted(drawn, key=lambda r: -r.metrics['RMSE'])
        assert sorted(places, key=lambda i: places[i][1]) == [r.id for r in by_score]


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
    assert page.count('</script>') == 1
    assert not re.search(r'<(link|img|script\s+src)', page)
    # Names of XML, and references inside a picture.
    data = data_of(path)
    for svg in data['plots'].values():
        assert not re.findall(r'(?:href|src)="[^#]|url\([^#]', svg)
    assert list(data['plots'])[0] == 'latency'


def test_a_page_over_a_missing_cost_is_refused(tmp_path):
    with pytest.raises(ValueError, match='memory'):
        write_pareto_page(RESULTS, tmp_path / 'pareto.html', 'memory')
    assert not list(tmp_path.iterdir())
