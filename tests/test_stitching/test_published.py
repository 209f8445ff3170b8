import json
from pathlib import Path

import pytest

from snnet_mm.stitching import TwoWaySpace, pareto_front, read_published

FILE = Path(__file__).parents[1] / 'data' / 'ade20k_setr_deit3_s_l.json'
SPACE = TwoWaySpace((12, 24))


def test_published_figures_become_results(published):
    results = read_published(FILE, SPACE, (512, 512))
    assert results.scores() == {i: v['mIoU'] for i, v in published.items()}
    assert results.column('flops') == {i: v['flops'] for i, v in published.items()}
    by_id = {r.id: r for r in results.stitches}
    assert by_id[109].route == 'fast[0:4] > slow[8:14] > fast[7:12]'
    assert by_id[109].metrics == dict(mIoU=47.66, aAcc=82.66, mAcc=59.28)
    assert by_id[24].kind == 'SF'
    assert len(results.front()) == 13
    results.check_space(SPACE)
    with pytest.raises(ValueError, match='hold no params'):
        results.column('params')


def test_a_metric_may_be_better_when_lower(published):
    results = read_published(FILE, SPACE, (512, 512), 'aAcc', higher_is_better=False)
    errors = {i: v['aAcc'] for i, v in published.items()}
    front = pareto_front(results.column('flops'), errors, higher_is_better=False)
    assert results.front() == front
    assert front[0] == 0


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(stitches={'13': dict(flops=1, mIoU=1)}), 'stitch id 13 is not in'),
        (dict(stitches={'0': dict(flops=1, acc1=1)}), "no 'mIoU' but .'acc1'."),
        (dict(stitches={'0': dict(mIoU=1)}), "KeyError 'flops'"),
        (dict(stitches=3), 'is no file of published figures'),
        (dict(stitches=[]), 'no stitches by id; results of .* without --depths'),
    ],
)
def test_other_files_are_refused(tmp_path, change, words):
    path = tmp_path / 'figures.json'
    path.write_text(json.dumps(json.loads(FILE.read_text()) | change))
    with pytest.raises(ValueError, match=words):
        read_published(path, SPACE, (512, 512))
