import json
from dataclasses import replace

import numpy as np
import pytest
from compare_fronts import FrontComparison, Run

from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.stitching import Cost, StitchTable, TwoWaySpace


def make_run(costs, per_image, anchors=None, sign=1, routes=''):
    """A run whose scores, in percent, are means of rows ``(stitches, images)``."""
    numerators = np.asarray(per_image, float)[..., None] / 100
    ids = tuple(range(len(costs)))
    images = ImageScores('acc', ids, numerators, np.ones_like(numerators), 100)
    anchors = np.ones(len(costs), bool) if anchors is None else np.array(anchors)
    return Run(np.asarray(costs, float), images, sign, anchors, tuple(routes))


def constant_run(costs, scores, num_images=6, **kwargs):
    per_image = np.tile(np.array(scores)[:, None], num_images)
    return make_run(costs, per_image, **kwargs)


def compare(num_resamples=100, **models):
    models = {k: v if isinstance(v, list) else [v] for k, v in models.items()}
    return FrontComparison(models, num_resamples)


@pytest.mark.parametrize('sign', [1, -1])
def test_front_comparison_figures_by_hand(sign):
    # Budgets go from 1 to 5. Of `a` the best is 50 up to 3 and 60 from there on.
    a = constant_run([1, 3, 4], sign * np.array([50, 60, 55]), sign=sign)
    b = constant_run([1, 5], sign * np.array([40, 70]), sign=sign)
    comparison = compare(a=a, b=b)
    figures = comparison.figures()
    values = {m: {k: f.value for k, f in fs.items()} for m, fs in figures.items()}
    assert values['a']['area under front'] == pytest.approx(sign * 55)
    assert values['b']['area under front'] == pytest.approx(sign * 40)
    # Better than 5 points under the worst anchor, up to 1.05 of the largest cost.
    assert comparison.reference == pytest.approx((5.25, 35))
    assert values['a']['hypervolume'] == pytest.approx((15 * 2 + 25 * 2.25) / 5.25)
    best = [values['a'][k] for k in values['a'] if k.startswith('best within')]
    assert best == pytest.approx([sign * 50] * 6 + [sign * 60] * 7)
    assert 'best within 2.333 GFLOPs' in values['a']
    # Images are alike, so that no resample differs.
    area = figures['a']['area under front']
    assert area.low == pytest.approx(area.high) == pytest.approx(area.value)


def test_front_comparison_differences_are_paired_over_images():
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 100, (2, 40))
    a, b = make_run([1, 2], base), make_run([1, 2], base + 3)
    comparison = compare(a=a, b=b)
    own = comparison.figures()['b']['area under front']
    assert own.high - own.low > 5
    shift = comparison.differences('a')['b']['area under front']
    assert (shift.value, shift.low, shift.high) == pytest.approx((3, 3, 3))


def test_front_comparison_differences_to_the_model_before():
    models = {
        n: constant_run([1, 2], [s, s]) for n, s in dict(a=40, b=45, c=43).items()
    }
    found = compare(**models).differences(None)
    areas = {name: of['area under front'].value for name, of in found.items()}
    assert areas == {'b': pytest.approx(5), 'c': pytest.approx(-2)}


def test_front_comparison_mean_is_of_the_stitches_that_all_models_have():
    few = constant_run([1, 2], [40, 50], routes=['fast', 'slow'])
    many = constant_run([1, 2, 3], [48, 90, 44], routes=['slow', 'two-way', 'fast'])
    key = 'mean of the 2 stitches of all models'
    figures = compare(few=few, many=many).figures()
    assert {n: f[key].value for n, f in figures.items()} == pytest.approx(
        dict(few=45, many=46)
    )
    others = compare(few=few, other=constant_run([1, 2], [1, 2], routes='xy'))
    assert not [k for k in others.figures()['few'] if k.startswith('mean of')]


@pytest.mark.parametrize('sign', [1, -1])
def test_front_comparison_other_images_choose_the_stitches(sign):
    run = constant_run([1, 2, 3], sign * np.array([40, 50, 60]), sign=sign)
    run = replace(run, choosing=sign * np.array([30.0, 70, 20]))
    budgets = np.array([0.5, 1, 2, 3])
    best = run.best_within(budgets, np.ones((2, 6)))
    np.testing.assert_allclose(best, [[np.nan, 40, 50, 50]] * 2)
    alone = replace(run, choosing=None)
    with pytest.raises(ValueError, match='for all, or for none'):
        Run.joined([run, alone])


def test_front_comparison_averages_seeds_and_joins_models_alone():
    runs = [constant_run([1, 2], [40, 50]), constant_run([1, 2], [44, 50])]
    alone = Run.joined([constant_run([4], [60]), constant_run([1], [50])])
    area = compare(a=runs).figures()['a']['area under front']
    assert (area.value, area.seeds) == (pytest.approx(42), pytest.approx((40, 44)))
    costs, (value, low, high) = compare(alone=alone).steps('alone')
    assert costs.tolist() == [1, 4]
    for row in (value, low, high):
        np.testing.assert_allclose(row, [50, 60])


def test_run_joined_other_images_metrics_and_directions_are_refused():
    run = make_run([1, 2], np.ones((2, 4)))
    others = [
        (replace(run.images, names='b'), 'test_dataloader'),
        (replace(run.images, metric='delta1'), 'metric='),
    ]
    for images, words in others:
        with pytest.raises(ValueError, match=words):
            Run.joined([run, replace(run, images=images)])
    with pytest.raises(ValueError, match='the same direction for all'):
        Run.joined([run, replace(run, sign=-1)])


def test_compare_fronts_names_of_outputs_keep_their_dots(run_here, tmp_path):
    space = TwoWaySpace((3, 7))
    costs = {i: Cost(10**9 * (i + 1), 5) for i in (0, 1)}
    costs = StitchTable.counted(costs, (8, 8), space)
    metrics = {0: dict(mIoU=40.0), 1: dict(mIoU=60.0)}
    results = replace(costs.with_metrics(metrics), digest='a test')
    results.save(tmp_path / 'stitches.json')
    numerators = np.repeat([[0.4], [0.6]], 4, axis=1)[..., None]
    images = ImageScores('mIoU', (0, 1), numerators, np.ones_like(numerators), 100)
    images = replace(images, digest=results.digest)
    images.save(tmp_path / 'per_image.npz')
    out = tmp_path / 'out/lr1e-3.v0.5'
    options = ('--resamples', 100, '--out', out)
    tool = 'analysis_tools/compare_fronts.py'
    run_here(tool, f'a={tmp_path / "stitches.json"}', *options)
    names = {path.name for path in out.parent.iterdir()}
    assert names == {'lr1e-3.v0.5.json', 'lr1e-3.v0.5.png'}
    run_here(tool, f'a={tmp_path / "stitches.json"}', *options[:2])
    figures = json.loads((tmp_path / 'fronts.json').read_text())['figures']['a']
    assert 'best within 1.5 GFLOPs' in figures
    assert figures['area under front']['value'] == pytest.approx(40)
    worse = replace(
        results, rows=[replace(r, metrics=dict(mIoU=-r.id)) for r in results.rows]
    )
    worse.save(tmp_path / 'val.json')
    chosen = f'{tmp_path / "stitches.json"}@{tmp_path / "val.json"}'
    run_here(tool, f'a={chosen}', '--resamples', 100)
    figures = json.loads((tmp_path / 'fronts.json').read_text())['figures']['a']
    assert figures['best within 2 GFLOPs']['value'] == pytest.approx(40)
    replace(worse, rows=worse.rows[:1]).save(tmp_path / 'val.json')
    with pytest.raises(ValueError, match=r'stitches \[1\], too'):
        run_here(tool, f'a={chosen}')
