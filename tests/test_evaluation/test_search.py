from dataclasses import replace
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from toy import runner_of

from snnet_mm.bridging import BridgeSpace
from snnet_mm.evaluation import stitch_table
from snnet_mm.evaluation.search import (
    StitchSearch,
    route_features,
    run_search,
)
from snnet_mm.stitching import (
    Cost,
    CostTable,
    StagedSpace,
    StitchResults,
    TwoWaySpace,
    group_by_cost,
    split_cost_range,
)

DATA = Path(__file__).parents[1] / 'data'
SPACE = TwoWaySpace((12, 24))


def costs_of(flops):
    return CostTable({i: Cost(f, 1) for i, f in flops.items()}, (8, 8))


def simulate(results, number, space=SPACE):
    """A search, and what it finds if results come as it asks for them."""
    rows = {r.id: r for r in results.stitches}
    search = StitchSearch(space, costs_of(results.column('flops')))
    evaluate = lambda ids: replace(results, stitches=[rows[i] for i in ids])  # noqa: E731
    found = run_search(evaluate, search, number)
    return search, found


def lost(results, found, step):
    """What the best found loses to the best there is, within budgets."""
    flops, scores, known = results.column('flops'), results.scores(), found.scores()
    losses = []
    for group in group_by_cost(flops, step):
        affordable = [i for i in flops if flops[i] <= flops[group[-1]]]
        best = max(known[i] for i in affordable if i in known)
        losses.append(max(scores[i] for i in affordable) - best)
    return mean(losses), max(losses)


@pytest.mark.parametrize(
    ('name', 'step', 'number', 'bounds'),
    [
        ('ade20k_setr_deit3_s_l', 10e9, 24, (0.14, 0.90)),
        ('ade20k_setr_deit3_s_l', 10e9, 32, (0.07, 0.73)),
        ('imagenet_deit3_s_l', 1e9, 24, (0.07, 0.63)),
        ('imagenet_deit3_s_l', 1e9, 32, (0.004, 0.04)),
    ],
)
def test_what_a_search_loses_on_published_figures(name, step, number, bounds):
    results = StitchResults.read(DATA / f'{name}.json', SPACE)
    _, found = simulate(results, number)
    assert all(np.array(lost(results, found, step)) <= bounds)
    truth = results.scores()
    assert [r.id for r in found.stitches] == list(SPACE.ids)
    assert len(found.measured) == len(found.scores()) == number
    errors = [(found.score(r) - truth[r.id]) / r.deviation for r in found.predicted]
    assert len(errors) == 134 - number
    assert 0.6 < np.std(errors) < 1.2
    assert np.mean(np.abs(errors) < 2) > 0.9


def test_errors_are_searched_as_scores_are():
    """The same stitches, turned round."""
    results = StitchResults.read(DATA / 'imagenet_deit3_s_l.json', SPACE)
    turned = [
        replace(r, metrics=dict(rmse=-r.metrics['acc1'])) for r in results.stitches
    ]
    header = dict(metric='rmse', directions=dict(rmse='lower'))
    _, a = simulate(replace(results, stitches=turned, **header), 20)
    _, b = simulate(results, 20)
    assert [r.id for r in a.measured] == [r.id for r in b.measured]
    scores = [[x.score(r) for r in x.predicted] for x in (a, b)]
    np.testing.assert_allclose(scores[0], -np.array(scores[1]))


def test_features_by_hand():
    space = TwoWaySpace((2, 4))
    flops = {0: 1, 1: 5, 2: 4, 4: 2}
    guess = dict.fromkeys(space.ids, 7)
    rows = [
        # Place and its square, depths of changes, number, anchors, fast share, run.
        [0, 0, 0.5, 0.5, 0, 0, 0, 1, 1, 1, 7],
        [1, 1, 0.5, 0.5, 0, 1, 1, 0, 0, 1, 7],
        [0.75, 0.5625, 0.5, 0.5, 1, 0, 1, 1 / 3, 0.5, 1, 7],
        [0.25, 0.0625, 0.5, 0.5, 1, 1, 0, 1 / 3, 0, 0.5, 7],
    ]
    assert space.ids == (0, 1, 2, 4)
    spread = np.std(rows, axis=0)
    expected = (rows - np.mean(rows, axis=0)) / np.where(spread > 0, spread, 1)
    np.testing.assert_allclose(route_features(space, flops, guess), expected)
    assert (expected[:, -1] == 0).all()


def made_up(space):
    """Results where each later stitch is dearer and better, but for the last."""
    costs = costs_of({i: 100 + n for n, i in enumerate(space.ids)})
    scores = {i: dict(mIoU=float(n)) for n, i in enumerate(space.ids)}
    scores[space.ids[-1]] = dict(mIoU=float('nan'))
    return StitchResults.collect(space, costs, scores)


@pytest.mark.parametrize(
    'space',
    [
        StagedSpace([(2, 2, 6, 2), (2, 2, 18, 2)], (0, 1, 2)),
        BridgeSpace((9, 9), [(i, j) for i in range(1, 6) for j in range(3, 8)]),
        BridgeSpace((9, 9), [(i, 4) for i in range(1, 6)], maps=True),
    ],
    ids=['staged', 'bridged', 'bridged, one anchor'],
)
def test_other_spaces_are_searched_by_what_they_have(space):
    """To the end, where nothing is left and nothing was tried twice."""
    search, found = simulate(made_up(space), len(space), space)
    assert [r.id for r in found.measured] == list(space.ids)
    assert search.next(found) == []
    few = replace(found, stitches=found.stitches[:4])
    told = search.with_predictions(few)
    assert len(told.stitches) == len(space)
    assert np.isfinite([told.score(r) for r in told.predicted]).all()


def test_a_screening_decides_what_comes_first():
    flops = {i: i + 1 for i in SPACE.ids}
    group = split_cost_range(flops, 12)[2]
    scores = dict.fromkeys(SPACE.ids, 1.0) | {group[5]: 0.5, group[0]: float('nan')}
    rmse = {i: dict(rmse=score) for i, score in scores.items()}
    screened = StitchResults.collect(SPACE, costs_of(flops), rmse)
    search = StitchSearch(SPACE, costs_of(flops), screened)
    first = search.first(24)
    assert first[:2] == [0, 1]
    assert len(first) == 7  # the cheapest stitch of the first group is an anchor
    assert set(first) & set(group) == {group[5]}
    assert search.first(3) == first[:3]


@pytest.fixture
def run(toy_cfg):
    """Runs a test of the toy model; its results and its log."""
    toy_cfg.log_level = 'INFO'

    def run(**settings):
        runner = runner_of(toy_cfg, **settings)
        metrics = runner.test()
        (path,) = Path(runner.log_dir).rglob('stitches.json')
        log = next(Path(runner.log_dir).glob('*.log')).read_text()
        return metrics, StitchResults.read(path), log

    return run


def test_a_search_measures_some_and_predicts_the_others(run, toy_cfg, monkeypatch):
    everything, _, _ = run(stitches='all')
    metrics, results, log = run(stitches='search', evaluate=9)
    assert len(results.measured) == 9
    assert {0, 1} <= {r.id for r in results.measured}
    assert len(results.predicted) == 5
    wanted = {f'stitch_{r.id}/{n}' for r in results.measured for n in r.metrics}
    assert metrics == {name: everything[name] for name in wanted}
    assert '14 stitches runs' in log
    cells = {c.header: list(c.cells) for c in stitch_table(results).columns}
    assert cells['images'].count('predicted') == 5
    assert sum('±' in cell for cell in cells['mIoU']) == 5
    assert cells['aAcc'].count('') == 5

    # A crash after the first pass: that pass is not repeated.
    passes, once = [], StitchSearch.next

    def fail(search, results, number):
        passes.append([r.id for r in results.stitches])
        raise InterruptedError

    monkeypatch.setattr(StitchSearch, 'next', fail)
    with pytest.raises(InterruptedError):
        run(stitches='search', evaluate=9)
    monkeypatch.setattr(StitchSearch, 'next', once)
    first_pass = f'{len(passes[0])} stitches in one pass'
    assert first_pass in log
    again, resumed, log = run(stitches='search', evaluate=9, resume=True)
    assert (again, resumed) == (metrics, results)
    assert first_pass not in log
    assert not (Path(toy_cfg.work_dir) / 'partial_test').exists()


def test_a_screening_guides_the_search(run):
    metrics, results, _ = run(stitches='search', evaluate=6, screen=2, limit=3)
    assert {r.num_images for r in results.measured} == {3}
    assert len(results.measured) == len({k.split('/')[0] for k in metrics}) == 6
