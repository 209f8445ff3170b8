"""One pass over the data against one pass per stitch."""

import copy
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from block_counts import count_blocks
from killing import hold
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.registry import HOOKS, METRICS
from mmengine.runner import Runner
from toy import runner_of

from snnet_mm.costs import cost_table
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.models import find_stitched_backbone, set_input_size, set_stitch
from snnet_mm.stitching import StitchResults


@HOOKS.register_module()
class StopBefore(Hook):
    """Stands for a crash."""

    def __init__(self, batch, nth=1):
        self.batch, self.left = batch, nth

    def before_test_iter(self, runner, batch_idx, data_batch=None):
        self.left -= batch_idx == self.batch
        if not self.left:
            raise InterruptedError


def one_at_a_time(cfg, *state_dicts, ids=None, size=None):
    """mmengine's own loop, once per stitch."""
    cfg = copy.deepcopy(cfg)
    cfg.test_cfg = dict(type='TestLoop')
    runner = Runner.from_cfg(cfg)
    for state_dict in state_dicts:
        runner.model.load_state_dict(state_dict, strict=False)
    metrics = {}
    set_input_size(runner.model, size)
    for i in ids or find_stitched_backbone(runner.model).space.ids:
        set_stitch(runner.model, i)
        metrics |= {f'stitch_{i}/{k}': v for k, v in runner.test().items()}
    return metrics


@METRICS.register_module()
class FirstScore(BaseMetric):
    """Mean score of the first class, in which stitches differ that agree on a class."""

    def process(self, data_batch, data_samples):
        self.results += [sample['pred_score'][0].item() for sample in data_samples]

    def compute_metrics(self, results):
        return dict(first_score=float(np.mean(results)))


@pytest.mark.parametrize(
    'task, mode, batch_size',
    [('seg', 'slide', 2), ('depth', 'whole', 1), ('cls', 'whole', 2)],
)
def test_all_stitches_equal_one_at_a_time(toy_cfg, task, mode, batch_size):
    toy_cfg.test_dataloader.batch_size = batch_size
    if task == 'cls':
        toy_cfg.test_evaluator = dict(type='FirstScore')
    num_crops = 1
    if mode == 'slide':
        toy_cfg.model.test_cfg = dict(mode='slide', crop_size=(48, 48), stride=(16, 16))
        num_crops = 4
    if toy_cfg.model.get('test_cfg', {}).get('flip'):
        num_crops *= 2
    runner = runner_of(toy_cfg)
    backbone = find_stitched_backbone(runner.model)
    runs = count_runs(*(b for anchor in backbone.anchors for b in anchor.blocks))
    metrics = runner.test()
    assert len(runs) == (4 // batch_size) * num_crops * count_blocks(
        backbone.space, shared=True
    )
    assert metrics == one_at_a_time(toy_cfg, runner.model.state_dict())
    key = dict(seg='mIoU', depth='RMSE', cls='first_score')[task]
    assert len({v for k, v in metrics.items() if k.endswith(key)}) > 10


def test_test_time_augmentation_equals_one_at_a_time(toy_cfg):
    toy_cfg.test_dataloader.dataset.pipeline = [
        dict(
            type='TestTimeAug',
            transforms=[
                [dict(type='RandomFlip', prob=p) for p in (0.0, 1.0)],
                [dict(type='PackSegInputs')],
            ],
        )
    ]
    toy_cfg.model = dict(type='SegTTAModel', module=toy_cfg.model)
    runner = runner_of(toy_cfg, stitches=(0, 6, 9))
    metrics = runner.test()
    alone = one_at_a_time(toy_cfg, runner.model.state_dict(), ids=(0, 6, 9))
    assert metrics == alone
    assert runner_of(toy_cfg, stitches=(0, 6, 9), stitches_per_pass=2).test() == alone


def count_runs(*modules):
    """One entry per run of a module from now on, without those that count costs."""
    runs = []
    for module in modules:
        module.register_forward_hook(
            lambda module, args, out: None if out.is_meta else runs.append(module)
        )
    return runs


def count_batches(runner):
    return count_runs(find_stitched_backbone(runner.model).anchors[0].patch_embed)


def stop(cfg, batch, nth=1, **test_cfg):
    """Begin a test and crash; the file that it leaves, if any."""
    runner = runner_of(cfg, **test_cfg)
    runner.register_hook(StopBefore(batch, nth))
    with pytest.raises(InterruptedError):
        runner.test()
    return next(Path(cfg.work_dir).glob('partial_test*'), None)


def test_resuming_goes_on_after_the_last_finished_group(toy_cfg, tmp_path):
    few = dict(stitches=[0, 2, 4], stitches_per_pass=1, out_dir=str(tmp_path / 'new'))
    whole = runner_of(toy_cfg, **few).test()
    file = stop(toy_cfg, 1, nth=3, **few)
    assert len(torch.load(file, weights_only=False)['scores']) == 2
    kept = (tmp_path / 'new/per_image.npz').rename(tmp_path / 'kept.npz')
    runner = runner_of(toy_cfg, resume=True, **few)
    seen = count_batches(runner)
    assert runner.test() == whole
    assert len(seen) == 2  # those of the third group
    assert not file.exists()
    before, again = map(ImageScores.read, (kept, tmp_path / 'new/per_image.npz'))
    np.testing.assert_array_equal(again.numerators, before.numerators)
    assert again.ids == before.ids == (0, 2, 4)


def test_another_test_is_not_resumed(toy_cfg, caplog):
    """What else makes it another one: test_partial_results.py."""
    toy_cfg.log_level = 'INFO'
    # As mmpretrain's configs have it.
    toy_cfg.data_preprocessor = toy_cfg.model.pop('data_preprocessor')
    toy_cfg.test_cfg.update(type='StitchTestLoop', stitches=[0, 4], stitches_per_pass=1)
    runner = Runner.from_cfg(copy.deepcopy(toy_cfg))
    toy_cfg.data_preprocessor.mean = [900.0] * 3
    alone = Runner.from_cfg(copy.deepcopy(toy_cfg)).test()
    runner.register_hook(StopBefore(1, nth=2))
    with pytest.raises(InterruptedError):
        runner.test()
    toy_cfg.test_cfg.resume = True
    runner = Runner.from_cfg(toy_cfg)
    runner.logger.addHandler(caplog.handler)
    assert runner.test() == alone
    assert 'does not exist; tests of another model or of other weights' in caplog.text


def test_another_test_leaves_the_scores_of_an_interrupted_one(toy_cfg, tmp_path):
    settings = dict(stitches=[0, 2, 4], stitches_per_pass=1)
    file = stop(toy_cfg, 1, nth=3, **settings)
    kept = file.read_bytes()
    other = copy.deepcopy(toy_cfg)
    other.model.data_preprocessor.mean = [900.0] * 3
    for cfg, changes in (
        (other, dict(resume=True)),
        (toy_cfg, dict(stitches=[0])),
        (toy_cfg, dict(limit=1)),
        (toy_cfg, dict(sizes=[(32, 32)])),
    ):
        runner_of(copy.deepcopy(cfg), **settings | changes).test()
        assert [*tmp_path.glob('partial_test*')] == [file]
        assert file.read_bytes() == kept
    runner_of(toy_cfg, **settings).test()  # the same test anew
    assert not file.exists()


def test_a_wrong_metric_raises_before_the_pass(toy_cfg):
    runner = runner_of(toy_cfg, metric='nyu/d1')
    runner.register_hook(StopBefore(0))
    names = "'aAcc', 'mIoU', 'mAcc'"
    with pytest.raises(
        ValueError, match=f"metric='nyu/d1'; allowed: {names} .*--metric"
    ):
        runner.test()
    assert runner.test_evaluator.metrics[0].results == []
    runner = runner_of(toy_cfg, metric='mAcc')
    runner.register_hook(StopBefore(0))
    with pytest.raises(InterruptedError):
        runner.test()


def test_a_second_test_in_a_work_dir_is_not_begun(toy_cfg, tmp_path):
    file = stop(toy_cfg, 1, nth=2, stitches=[0, 4], stitches_per_pass=1)
    pid = hold(tmp_path, 'test')
    try:
        with pytest.raises(ValueError, match=f'without another test, .* {pid} '):
            runner_of(toy_cfg, [0]).test()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert file.exists()


def test_few_images_and_screening(toy_cfg, tmp_path, capsys):
    dataset, out_dir = toy_cfg.test_dataloader.dataset, tmp_path / 'report'
    dataset.num_scenes = 10
    ids = [0, 1, 4, 12, 14, 2]
    everything = runner_of(toy_cfg, ids).test()
    few = runner_of(toy_cfg, ids, limit=3, show_dir=str(tmp_path / 'show')).test()
    dataset.indices = [0, 3, 6]
    assert few == runner_of(toy_cfg, ids).test()
    del dataset['indices']

    screening = dict(stitches=ids, screen=3, keep=1, out_dir=str(out_dir))
    stop(toy_cfg, 4, **screening)
    runner = runner_of(toy_cfg, resume=True, **screening)
    seen = count_batches(runner)
    metrics = runner.test()
    assert len(seen) == 5  # the screening is not repeated
    stitches = json.loads((out_dir / 'stitches.json').read_text())['stitches']
    images = {s['id']: s['num_images'] for s in stitches}
    kept = {i for i in images if images[i] == 10}
    assert {0, 1} < kept < set(images)
    assert set(images.values()) == {3, 10}
    for i in images:
        expected = everything if i in kept else few
        assert metrics[f'stitch_{i}/mIoU'] == expected[f'stitch_{i}/mIoU']
    assert 'images' in capsys.readouterr().out
    # Stopped within the screening, what follows it was not begun.
    stop(toy_cfg, 1, **screening)
    assert runner_of(toy_cfg, resume=True, **screening).test() == metrics

    pictures = {str(p.relative_to(tmp_path)): p for p in tmp_path.glob('show/*/*')}
    names = '000000', '000003', '000006'
    assert set(pictures) == {f'show/stitch_{i}/{n}.png' for i in images for n in names}
    assert len({p.read_bytes() for p in pictures.values()}) > 8


@pytest.mark.parametrize('swaps', [True, False])
def test_pictures_of_all_sizes_and_folders(toy_cfg, tmp_path, monkeypatch, swaps):
    drawers, show = [], tmp_path / 'show'
    monkeypatch.setattr(
        'snnet_mm.evaluation.testing.PredictionDrawer',
        lambda *args: drawers.append(args[1:]) or (lambda *batch: None),
    )
    paths = [str(tmp_path / name / '0.png') for name in ('a', 'b')]
    monkeypatch.setattr('snnet_mm.evaluation.testing.image_paths', lambda data: paths)
    toy_cfg.model.data_preprocessor.bgr_to_rgb = swaps
    sizes = [(32, 48), (64, 64)]
    runner_of(toy_cfg, [0], sizes=sizes, limit=1, show_dir=str(show)).test()
    wanted = [(show / name, str(tmp_path), not swaps) for name in ('32x48', '64x64')]
    assert drawers == wanted


def test_tables_of_classes_go_to_the_log_file_alone(toy_cfg, capfd):
    toy_cfg.log_level = 'INFO'
    runner = runner_of(toy_cfg, stitches=[0, 9])
    runner.test()
    assert 'per class results' not in capfd.readouterr().err
    log = next(Path(runner.log_dir).glob('*.log')).read_text()
    assert log.count('per class results') == 2
    assert 'stitch 9:' in log


def test_several_sizes_equal_one_at_a_time(toy_cfg, tmp_path, capsys, caplog):
    toy_cfg.log_level, out_dir = 'INFO', tmp_path / 'report'
    sizes, ids = [(32, 48), (60, 64)], (0, 6, 9)
    settings = dict(stitches=ids, sizes=sizes, out_dir=str(out_dir))
    runner = runner_of(toy_cfg, **settings)
    runner.logger.addHandler(caplog.handler)
    metrics = runner.test()
    assert '60x64: padded to whole patches of 8 pixels' in caplog.text
    assert 'but costs are counted' not in caplog.text
    assert find_stitched_backbone(runner.model).input_size is None
    for size in sizes:
        name = '{}x{}'.format(*size)
        alone = one_at_a_time(toy_cfg, ids=ids, size=size)
        assert {k: metrics[f'{name}/{k}'] for k in alone} == alone
        results = StitchResults.read(out_dir / name / 'stitches.json')
        assert results.input_size == size
        costs = cost_table(runner.model, size)
        for r in results.stitches:
            assert r.metrics['mIoU'] == alone[f'stitch_{r.id}/mIoU']
            assert (r.flops, r.params) == costs[r.id][:2]
        assert (out_dir / name / 'per_image.npz').exists()
    assert len(metrics) == 2 * len(alone)
    assert 'Front over 6 pairs of a stitch and a size' in capsys.readouterr().out
    assert (out_dir / 'pareto.png').exists()

    # A crash at the second size: the first is not repeated.
    kept = (out_dir / '32x48/per_image.npz').rename(tmp_path / 'per_image.npz')
    stop(toy_cfg, 1, nth=2, **settings)
    runner = runner_of(toy_cfg, resume=True, **settings)
    seen = count_batches(runner)
    assert runner.test() == metrics
    assert len(seen) == 2
    before, again = map(ImageScores.read, (kept, out_dir / '32x48/per_image.npz'))
    np.testing.assert_array_equal(again.numerators, before.numerators)
