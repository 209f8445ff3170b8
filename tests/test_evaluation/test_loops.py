import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from tables import counts
from torch.utils.data import BatchSampler
from toy import runner_of

from snnet_mm.costs import cost_table
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.runtime.device import processor
from snnet_mm.stitching import Setup, StitchTable

METRICS = dict(
    seg=('mIoU', 'aAcc', 'mAcc'),
    depth=('RMSE', 'AbsRel', 'log10', 'delta1', 'delta2', 'delta3'),
)


@pytest.mark.parametrize('task', METRICS)
def test_test_loop_writes_results_and_picture(toy_cfg, task, tmp_path, capsys):
    out_dir = tmp_path / 'report'
    settings = dict(out_dir=str(out_dir), lower_is_better=METRICS[task][1:2])
    runner = runner_of(toy_cfg, **settings)
    set_stitch(runner.model, 6)
    metrics = runner.test()
    assert find_stitched_backbone(runner.model).active_stitch.id == 6
    written = json.loads((out_dir / 'stitches.json').read_text())
    costs = cost_table(runner.model)
    assert [s['id'] for s in written['stitches']] == list(costs)
    for s in written['stitches']:
        assert (s['flops'], s['params']) == counts(costs[s['id']])
        for key in METRICS[task]:
            of_loop = metrics[f'stitch_{s["id"]}/{key}']
            assert s['metrics'][key] == pytest.approx(of_loop)
    assert written['metric'] == METRICS[task][0]
    directions = [written['directions'][name] for name in METRICS[task][:2]]
    assert directions == ['higher' if task == 'seg' else 'lower', 'lower']
    names = sorted(p.name for p in out_dir.iterdir())
    assert names == ['pareto.png', 'per_image.npz', 'stitches.json']
    # Over all images they are the metric, which mmseg rounds to two digits.
    of_images = ImageScores.read(out_dir / 'per_image.npz')
    assert (of_images.metric, {*of_images.ids}) == (written['metric'], {*costs})
    (found,) = of_images.scores(np.ones((1, written['num_images'])))
    rows = {s['id']: s['metrics'] for s in written['stitches']}
    wanted = [rows[i][written['metric']] for i in of_images.ids]
    assert found.tolist() == pytest.approx(wanted, abs=0.01)
    assert len({*found.tolist()}) > 10
    assert 'slow[0:2] > fast[1:4]' in capsys.readouterr().out


def test_a_chain_of_three_anchors(toy_cfg, tmp_path):
    """Trained, evaluated and read again as two anchors are."""
    toy_cfg.default_hooks.stitch_sampling.sampler.step = 1e6
    anchors = toy_cfg.model.backbone.anchors
    anchors.insert(1, deepcopy(anchors[0]))
    for anchor, width, depth in zip(anchors, (16, 24, 48), (2, 3, 4), strict=True):
        anchor.arch.update(embed_dims=width, depth=depth)
    runner = runner_of(toy_cfg, out_dir=str(tmp_path / 'report'))
    runner.train()
    runner.test()
    space = find_stitched_backbone(runner.model).space
    assert space.ids == (0, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12)
    results = StitchTable.read(tmp_path / 'report' / 'stitches.json', space)
    costs = cost_table(runner.model)
    assert {r.id: (r.kind, r.flops) for r in results.rows} == {
        s.id: (s.kind, costs[s.id].flops) for s in space
    }
    assert results.rows[-1].route == 'anchor1[0:1] > anchor2[2:3] > anchor1[2:3]'


def test_validation_during_training(toy_cfg):
    toy_cfg.val_dataloader = toy_cfg.test_dataloader
    toy_cfg.val_evaluator = toy_cfg.test_evaluator
    toy_cfg.val_cfg = dict(type='StitchValLoop', stitches='0,4')
    toy_cfg.train_cfg.val_interval = 2
    best = dict(save_best='stitch_4/mIoU', rule='greater')
    toy_cfg.default_hooks.checkpoint.update(best)
    Runner.from_cfg(toy_cfg).train()
    assert (Path(toy_cfg.work_dir) / 'best_stitch_4_mIoU_iter_2.pth').exists()


@pytest.mark.parametrize(('stitches', 'meant'), [('0,4,1', 1), ('4,0', 4)])
def test_settings_that_name_a_metric_without_a_stitch(toy_cfg, stitches, meant):
    """They mean the slowest anchor, or the first stitch where that is not listed."""
    toy_cfg.val_dataloader = toy_cfg.test_dataloader
    toy_cfg.val_evaluator = toy_cfg.test_evaluator
    toy_cfg.val_cfg = dict(type='StitchValLoop', stitches=stitches)
    toy_cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)
    toy_cfg.train_dataloader.dataset.num_scenes = 4
    toy_cfg.train_dataloader.sampler = dict(type='DefaultSampler')
    toy_cfg.default_hooks.checkpoint.update(save_best=['mIoU', 'aAcc'], by_epoch=True)
    toy_cfg.custom_hooks = [dict(type='EarlyStoppingHook', monitor='mAcc', strict=True)]
    plateau = dict(type='ReduceOnPlateauLR', monitor='mIoU', rule='greater')
    toy_cfg.param_scheduler = [plateau]
    runner = Runner.from_cfg(toy_cfg)
    runner.train()
    scalars = runner.message_hub.log_scalars
    for name in METRICS['seg']:
        of_stitch = scalars[f'val/stitch_{meant}/{name}'].data[0].tolist()
        assert scalars[f'val/{name}'].data[0].tolist() == of_stitch
    scores = scalars[f'val/stitch_{meant}/mIoU'].data[0].tolist()
    assert runner.message_hub.get_info('best_score_mIoU') == max(scores)
    assert runner.param_schedulers[0].best in scores
    metrics = runner.val_loop.run()
    assert [*metrics][0] == 'mIoU'  # so that save_best='auto' takes it


def test_budgets_of_milliseconds_by_measured_costs(toy_cfg, tmp_path):
    path = tmp_path / 'costs.json'
    runner = runner_of(toy_cfg, '25ms')
    counted = cost_table(runner.model)
    latency = dict.fromkeys(counted, 30.0) | {3: 24.0}
    counted.measured(Setup(processor(), 1, 'fp32'), latency).save(path)
    runner = runner_of(toy_cfg, '25ms', results=str(path))
    runner.test()
    (written,) = tmp_path.glob('*/stitches.json')
    assert [*StitchTable.read(written)] == [3]
    rows = [replace(row, params=row.params + 1) for row in counted.rows]
    replace(counted, rows=rows).save(path)
    with pytest.raises(ValueError, match='stitch 0 has .* parameters in one'):
        runner_of(toy_cfg, '25G', results=str(path)).test()


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
def test_metrics_that_are_no_numbers(toy_cfg, tmp_path, values, metrics, words):
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
        ('test', SAVING, "='o'.*2 stitches would overwrite.*test_evaluator.output_dir"),
        ('val', SAVING, "='o'.*2 stitches would overwrite.*key: val_evaluator.output"),
    ],
)
def test_metrics_that_would_mix_stitches_are_refused(toy_cfg, mode, evaluator, words):
    toy_cfg[f'{mode}_dataloader'] = toy_cfg.test_dataloader
    toy_cfg[f'{mode}_evaluator'] = evaluator
    toy_cfg[f'{mode}_cfg'] = dict(type=f'Stitch{mode.title()}Loop', stitches=[0, 4])
    runner = Runner.from_cfg(toy_cfg)
    with pytest.raises(ValueError, match=words):
        runner.test() if mode == 'test' else runner.train()


def test_batch_samplers(toy_cfg):
    """Those that group images have no batch size."""
    batches = dict(type=BatchSampler, drop_last=False)
    for name in ('train_dataloader', 'test_dataloader'):
        loader = toy_cfg[name]
        loader.batch_sampler = dict(batches, batch_size=loader.pop('batch_size'))
    toy_cfg.test_dataloader.sampler = dict(type='DefaultSampler', shuffle=False)
    metrics = runner_of(toy_cfg, [0, 4], limit=2).test()
    assert 0 < metrics['stitch_0/mIoU'] < 100


def test_resizing_ends_with_a_test_that_fails(toy_cfg, monkeypatch):
    def fail(*args):
        raise ZeroDivisionError

    monkeypatch.setattr('snnet_mm.evaluation.loops.run_one_pass', fail)
    runner = runner_of(toy_cfg, [0], resize=[32, 32])
    with pytest.raises(ZeroDivisionError):
        runner.test()
    assert find_stitched_backbone(runner.model).input_size is None
