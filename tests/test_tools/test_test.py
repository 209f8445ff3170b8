import json
from pathlib import Path

import pytest

from snnet_mm.stitching import StitchResults

CONFIG = 'configs/toy/setr-naive_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


@pytest.fixture(scope='module')
def checkpoint(demo):
    return demo[0] / Path(CONFIG).stem / 'iter_3.pth'


def test_stitch_ids_are_tested_as_in_the_demo(run_tool, demo, checkpoint, tmp_path):
    args = (CONFIG, checkpoint, '--stitch-id', '0,9,14', '--work-dir', tmp_path)
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')
    done = run_tool('test.py', *args, *options)
    (written,) = tmp_path.glob('*/stitches.json')
    tested = {s['id']: s for s in json.loads(written.read_text())['stitches']}
    assert list(tested) == [0, 9, 14]
    of_demo = json.loads((demo[0] / 'stitches.json').read_text())['stitches']
    assert [s for s in of_demo if s['id'] in tested] == list(tested.values())
    assert 'slow[0:2] > fast[1:2] > slow[4:8]' in done.stdout


def test_stitches_by_results_and_budget(run_tool, demo, checkpoint, tmp_path):
    results = StitchResults.read(demo[0] / 'stitches.json')
    args = (CONFIG, checkpoint, '--results', demo[0] / 'stitches.json')
    options = ('--cfg-options', 'test_dataloader.dataset.num_scenes=10')
    for name, wanted, expected in (
        ('pareto', ('--stitch-id', 'pareto'), results.front()),
        ('budget', ('--budget', '0.04G'), [best_within(results, 0.04e9)]),
    ):
        work_dir = tmp_path / name
        shown = ('--show-dir', work_dir / 'show', '--limit', 2)
        run_tool('test.py', *args, *wanted, *shown, '--work-dir', work_dir, *options)
        written = StitchResults.read(next(work_dir.glob('*/stitches.json')))
        assert [r.id for r in written.stitches] == expected
        assert {r.num_images for r in written.stitches} == {2}
        pictures = sorted(
            str(p.relative_to(work_dir)) for p in work_dir.rglob('show/*/*')
        )
        assert pictures == sorted(
            f'show/stitch_{i}/00000{n}.png' for i in expected for n in (0, 5)
        )


def best_within(results, flops):
    affordable = [r for r in results.stitches if r.flops <= flops]
    return max(affordable, key=lambda r: (results.score(r), -r.flops)).id


def test_a_wrong_stitch_id_ends_in_words(run_tool, checkpoint, tmp_path):
    args = (CONFIG, checkpoint, '--stitch-id', 5, '--work-dir', tmp_path)
    done = run_tool('test.py', *args, ok=False)
    assert done.stderr.splitlines()[-1] == (
        'ValueError: stitch id 5 is not in the stitching space; allowed are 0-4, 6-14 '
        '(config key: stitches; option: --stitch-id)'
    )
    assert not list(tmp_path.glob('*/stitches.json'))


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        (('--budget', 1), "budget '1' has no unit; allowed are"),
        (('--budget', '60G,all'), "budget 'all'; allowed are"),
        (('--budget', '10X'), "budget '10X' has the unit 'X'; allowed are"),
        (('--keep', 2), r'--keep 2 of .* wanted is one \(option: --screen;'),
        (('--tta',), r'--tta needs a tta_model \(config key: tta_model\)'),
    ],
)
def test_options_that_cannot_be_met(run_here, options, words):
    with pytest.raises(ValueError, match=words):
        run_here('test.py', CONFIG, 'no.pth', *options)
