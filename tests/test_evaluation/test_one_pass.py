"""One pass over the data against one pass per stitch."""

import copy
from pathlib import Path

import numpy as np
import pytest
from block_counts import count_blocks
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS
from mmengine.runner import Runner
from small import runner_of
from tables import counts

from snnet_mm.costs import cost_table
from snnet_mm.models import find_stitched_backbone, set_input_size, set_stitch
from snnet_mm.stitching import StitchTable

pytestmark = pytest.mark.usefixtures('without_plot')


def one_at_a_time(cfg, *state_dicts, ids, size=None):
    """mmengine's own loop, once per stitch."""
    cfg = copy.deepcopy(cfg)
    cfg.test_cfg = dict(type='TestLoop')
    runner = Runner.from_cfg(cfg)
    for state_dict in state_dicts:
        runner.model.load_state_dict(state_dict, strict=False)
    metrics = {}
    set_input_size(runner.model, size)
    for i in ids:
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
def test_run_one_pass_equals_one_at_a_time(toy_cfg, task, mode, batch_size):
    toy_cfg.test_dataloader.update(batch_size=batch_size)
    toy_cfg.test_dataloader.dataset.num_scenes = 2
    if task == 'cls':
        toy_cfg.test_evaluator = dict(type='FirstScore')
    num_crops = 1
    if mode == 'slide':
        toy_cfg.model.test_cfg = dict(mode='slide', crop_size=(48, 48), stride=(16, 16))
        num_crops = 4
    if toy_cfg.model.get('test_cfg', {}).get('flip'):
        num_crops *= 2
    runner, runs = runner_of(toy_cfg), []
    backbone = find_stitched_backbone(runner.model)
    for block in (block for anchor in backbone.anchors for block in anchor.blocks):
        block.register_forward_hook(
            lambda block, _, out: None if out.is_meta else runs.append(block)
        )
    metrics = runner.test()
    assert len(runs) == (2 // batch_size) * num_crops * count_blocks(
        backbone.space, shared=True
    )
    some = (0, 3, 9)
    alone = one_at_a_time(toy_cfg, runner.model.state_dict(), ids=some)
    assert {name: metrics[name] for name in alone} == alone
    key = dict(seg='mIoU', depth='RMSE', cls='first_score')[task]
    assert len({v for k, v in metrics.items() if k.endswith(key)}) > 10


def test_run_one_pass_of_resized_images(toy_cfg, tmp_path, caplog):
    toy_cfg.log_level, out_dir, ids = 'INFO', tmp_path / 'report', (0, 6, 9)
    runner = runner_of(toy_cfg, ids, resize=(60, 64), out_dir=str(out_dir))
    runner.logger.addHandler(caplog.handler)
    metrics = runner.test()
    assert find_stitched_backbone(runner.model).input_size is None
    assert metrics == one_at_a_time(toy_cfg, ids=ids, size=(60, 64))
    table, costs = runner.test_loop.table, cost_table(runner.model, (60, 64))
    assert table == StitchTable.read(out_dir / 'stitches.json')
    assert table.input_size == (60, 64)
    assert [counts(row) for row in table.rows] == [counts(costs[i]) for i in ids]


def test_run_one_pass_spreads_few_images_over_data(toy_cfg, tmp_path):
    dataset, ids = toy_cfg.test_dataloader.dataset, [0, 12]
    dataset.num_scenes = 10
    runner = runner_of(toy_cfg, ids, limit=3, show_dir=str(tmp_path / 'show'))
    few = runner.test()
    assert runner.test_loop.table.data_size == 10
    assert runner.test_loop.table.shared('num_images') == 3
    dataset.indices = [0, 3, 6]
    assert few == runner_of(toy_cfg, ids).test()
    pictures = {p.parts[-4] + p.stem: p for p in tmp_path.rglob('*/*/*/*.png')}
    names = '000000', '000003', '000006'
    assert {*pictures} == {f'stitch_{i}{name}' for i in ids for name in names}
    assert len({p.read_bytes() for p in pictures.values()}) > 3


def test_run_one_pass_logs_tables_of_classes(toy_cfg, capfd):
    toy_cfg.log_level = 'INFO'
    runner = runner_of(toy_cfg, stitches=[0, 9])
    runner.test()
    assert 'per class results' not in capfd.readouterr().err
    log = next(Path(runner.log_dir).glob('*.log')).read_text()
    assert log.count('per class results') == 2
    assert 'stitch 9:' in log


def test_check_metric_wrong_metric_raises_before_pass(toy_cfg):
    runner = runner_of(toy_cfg, metric='nyu/d1')
    with pytest.raises(ValueError, match="metric='nyu/d1' .*--metric"):
        runner.test()
    assert runner.test_evaluator.metrics[0].results == []
