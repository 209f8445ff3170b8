from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from small import runner_of
from tables import counts
from torch.utils.data import BatchSampler

from snnet_mm.costs import cost_table
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import Selection, StitchTable


def test_stitch_test_loop_writes_results_and_picture(toy_cfg, tmp_path, capsys):
    out_dir = tmp_path / 'report'
    runner = runner_of(toy_cfg, out_dir=str(out_dir), lower_is_better=['aAcc'])
    set_stitch(runner.model, 6)
    metrics = runner.test()
    assert find_stitched_backbone(runner.model).active_stitch.id == 6
    written = StitchTable.read(out_dir / 'stitches.json')
    costs = cost_table(runner.model)
    assert [*written] == [*costs]
    for i in costs:
        assert counts(written[i]) == counts(costs[i])
        for key, value in written[i].metrics.items():
            assert value == pytest.approx(metrics[f'stitch_{i}/{key}'])
    assert {*written[0].metrics} == {'mIoU', 'aAcc', 'mAcc'}
    assert written.directions == dict(mIoU='higher', aAcc='lower', mAcc='higher')
    names = sorted(p.name for p in out_dir.iterdir())
    assert names == ['pareto.png', 'per_image.npz', 'stitches.json']
    # Over all images they are the metric, which mmseg rounds to two digits.
    of_images, scores = ImageScores.read(out_dir / 'per_image.npz'), written.scores()
    assert (of_images.metric, {*of_images.ids}) == ('mIoU', {*costs})
    (found,) = of_images.scores(np.ones((1, written.shared('num_images'))))
    wanted = [scores[i] for i in of_images.ids]
    assert found.tolist() == pytest.approx(wanted, abs=0.01)
    assert len({*found.tolist()}) > 10
    assert 'slow[0:2] > fast[1:4]' in capsys.readouterr().out


def test_stitch_val_loop_means_slowest_anchor(toy_cfg):
    """In settings without a stitch; if it is not validated, the first of the list."""
    toy_cfg.val_dataloader = toy_cfg.test_dataloader
    toy_cfg.val_evaluator = toy_cfg.test_evaluator
    toy_cfg.val_cfg = dict(type='StitchValLoop', stitches='0,4,1')
    toy_cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)
    toy_cfg.train_dataloader.dataset.num_scenes = 4
    toy_cfg.train_dataloader.sampler = dict(type='DefaultSampler')
    best = dict(save_best=['mIoU', 'stitch_4/mIoU'], rule='greater', by_epoch=True)
    toy_cfg.default_hooks.checkpoint.update(best)
    toy_cfg.custom_hooks = [dict(type='EarlyStoppingHook', monitor='mAcc', strict=True)]
    plateau = dict(type='ReduceOnPlateauLR', monitor='mIoU', rule='greater')
    toy_cfg.param_scheduler = [plateau]
    runner = Runner.from_cfg(toy_cfg)
    runner.train()
    assert [*Path(toy_cfg.work_dir).glob('best_stitch_4_mIoU_epoch_*.pth')]
    scalars = runner.message_hub.log_scalars
    scores = scalars['val/stitch_1/mIoU'].data[0].tolist()
    assert scalars['val/mIoU'].data[0].tolist() == scores
    assert runner.message_hub.get_info('best_score_mIoU') == max(scores)
    assert runner.param_schedulers[0].best in scores
    runner.val_loop.selection = Selection('4,0')
    metrics = runner.val_loop.run()
    assert metrics['mAcc'] == metrics['stitch_4/mAcc']
    assert [*metrics][0] == 'mIoU'  # so that save_best='auto' takes it


class Given(BaseMetric):
    """Gives what a test says."""

    def process(self, data_batch, data_samples):
        self.results += data_samples

    def compute_metrics(self, results):
        return self.values


class Nested(Given):
    """Collects elsewhere, as mmpretrain's metric of several tasks."""

    def evaluate(self, size):
        return {}


@pytest.mark.parametrize(
    ('values', 'metrics', 'words'),
    [
        (dict(mIoU=np.float32(4), rows=[1, 2]), dict(mIoU=4), 'rows: [1, 2]'),
        (dict(matrix=torch.eye(2)), {}, 'No report is written: no metric of the evalu'),
    ],
)
def test_stitch_test_loop_metrics_that_are_no_numbers(
    toy_cfg, tmp_path, values, metrics, words
):
    Given.values = values
    toy_cfg.test_evaluator, toy_cfg.log_level = dict(type=Given), 'INFO'
    wanted = {f'stitch_{i}/{name}': v for i in (0, 4) for name, v in metrics.items()}
    assert runner_of(toy_cfg, [0, 4]).test() == wanted
    (log,) = tmp_path.glob('*/*.log')
    assert words in log.read_text()
    assert bool([*tmp_path.rglob('stitches.json')]) == bool(metrics)


SAVING = dict(type='IoUMetric', output_dir='o')


@pytest.mark.parametrize(
    ('mode', 'evaluator', 'words'),
    [
        ('test', dict(type=Nested), "test_evaluator='Nested'"),
        ('val', SAVING, "='o'.*val_evaluator.output_dir"),
    ],
)
def test_loops_refuse_metrics_that_mix_stitches(
    toy_cfg, tmp_path, monkeypatch, mode, evaluator, words
):
    monkeypatch.chdir(tmp_path)  # the metric makes its folder
    toy_cfg[f'{mode}_dataloader'] = toy_cfg.test_dataloader
    toy_cfg[f'{mode}_evaluator'] = evaluator
    toy_cfg[f'{mode}_cfg'] = dict(type=f'Stitch{mode.title()}Loop', stitches=[0, 4])
    runner = Runner.from_cfg(toy_cfg)
    with pytest.raises(ValueError, match=words):
        runner.test() if mode == 'test' else runner.train()


def test_stitch_test_loop_takes_batch_samplers(toy_cfg):
    """Those that group images have no batch size."""
    loader = toy_cfg.test_dataloader
    batches = dict(type=BatchSampler, batch_size=loader.pop('batch_size'))
    loader.batch_sampler = dict(batches, drop_last=False)
    loader.sampler = dict(type='DefaultSampler', shuffle=False)
    metrics = runner_of(toy_cfg, [0, 4], limit=2).test()
    assert 0 < metrics['stitch_0/mIoU'] < 100
