"""Written results of a test, and what resumes from them."""

import copy

import numpy as np
import pytest
from mmengine.dataset import BaseDataset
from mmengine.runner import Runner
from small import runner_of

from snnet_mm.evaluation import loops
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.evaluation.testing import identify
from snnet_mm.stitching import StitchTable

pytestmark = pytest.mark.usefixtures('without_plot')
SETTINGS = dict(stitches=[0, 2, 4], stitches_per_pass=1)


@pytest.fixture
def passes(monkeypatch):
    """Stitches of the passes that were begun; the fifth pass crashes."""
    begun, run = [], loops.run_one_pass

    def run_one_pass(runner, mode, loader, buffers, *args):
        begun.extend(buffers.ids)
        if len(begun) == 5:
            raise InterruptedError
        run(runner, mode, loader, buffers, *args)

    monkeypatch.setattr(loops, 'run_one_pass', run_one_pass)
    return begun


def test_written_results_resume_skips_their_stitches(toy_cfg, tmp_path, passes):
    whole, part = tmp_path / 'whole', tmp_path / 'part'
    metrics = runner_of(toy_cfg, **SETTINGS, out_dir=str(whole)).test()
    with pytest.raises(InterruptedError):
        runner_of(toy_cfg, **SETTINGS, out_dir=str(part)).test()
    first, second, third, again, crashed = passes
    assert (again, crashed) == (first, second)
    assert [*StitchTable.read(part / 'stitches.json')] == [first]
    runner = runner_of(toy_cfg, **SETTINGS, resume=True, out_dir=str(part))
    assert runner.test() == metrics
    assert passes[5:] == [second, third]
    table = StitchTable.read(part / 'stitches.json')
    assert table == StitchTable.read(whole / 'stitches.json') == runner.test_loop.table
    before, after = (
        ImageScores.read(f / 'per_image.npz', table) for f in (whole, part)
    )
    assert before.ids == after.ids
    np.testing.assert_array_equal(before.numerators, after.numerators)


def test_written_results_resume_finds_other_runs(toy_cfg, tmp_path, passes):
    runner_of(toy_cfg, [2]).test()
    metrics = runner_of(toy_cfg, [0, 2], resume=True).test()
    assert passes == [2, 0]
    assert {name.split('/')[0] for name in metrics} == {'stitch_0', 'stitch_2'}


CHANGES = [
    dict(model=dict(test_cfg=dict(mode='slide'))),
    dict(data_preprocessor=dict(mean=[900.0])),
    dict(test_dataloader=dict(batch_size=1)),
    dict(test_evaluator=dict(iou_metrics=['mDice'])),
    *(dict(test_cfg={key: 7}) for key in ('fp16', 'metric', 'resize')),
]


def test_identify_covers_all_that_changes_scores(toy_cfg, tmp_path):
    runner = Runner.from_cfg(toy_cfg)
    dataset = runner.test_dataloader.dataset
    known = identify(runner, dataset)
    for change in CHANGES:
        runner.cfg = copy.deepcopy(toy_cfg)
        runner.cfg.merge_from_dict(change)
        assert identify(runner, dataset) != known
    runner.cfg = copy.deepcopy(toy_cfg)
    runner.cfg.test_cfg.update(resume=True, stitches=[0], stitches_per_pass=2)
    runner.cfg.model = dict(reversed(runner.cfg.model.items()))
    assert identify(runner, dataset) == known
    found = []
    for name in ('a.jpg', 'b.jpg', 'b.jpg'):
        data = BaseDataset(lazy_init=True)
        data.load_data_list = lambda name=name: [dict(img_path=name)]
        data.full_init()
        found.append(identify(runner, data))
    a, b, again = found
    assert a != b == again
    # The files of images, labels and annotations may have changed.
    image, labels, listed = (tmp_path / name for name in ('image', 'labels', 'list'))
    info = dict(img_path=str(image), seg_map_path=str(labels))
    data = BaseDataset(lazy_init=True)
    data.ann_file, data.load_data_list = str(listed), lambda: [info]
    data.full_init()
    for path in (image, labels, listed):
        before = identify(runner, data)
        path.write_text('a')
        assert identify(runner, data) != before
    next(runner.model.parameters()).data.add_(1)
    assert identify(runner, dataset) != known
