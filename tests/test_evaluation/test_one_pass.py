"""One pass over the data against one pass per stitch."""

import copy
import json
from pathlib import Path

import pytest
import torch
from block_counts import count_blocks
from mmengine.dataset import BaseDataset
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from snnet_mm.evaluation.partial_results import identify_data
from snnet_mm.models import find_stitched_backbone, set_stitch


@HOOKS.register_module()
class StopBefore(Hook):
    """Stands for a crash."""

    def __init__(self, batch):
        self.batch = batch

    def before_test_iter(self, runner, batch_idx, data_batch=None):
        if batch_idx == self.batch:
            raise InterruptedError


def one_at_a_time(cfg, *state_dicts, ids=None):
    """mmengine's own loop, once per stitch."""
    cfg = copy.deepcopy(cfg)
    cfg.test_cfg = dict(type='TestLoop')
    runner = Runner.from_cfg(cfg)
    for state_dict in state_dicts:
        runner.model.load_state_dict(state_dict, strict=False)
    metrics = {}
    for i in ids or find_stitched_backbone(runner.model).space.ids:
        set_stitch(runner.model, i)
        metrics |= {f'stitch_{i}/{k}': v for k, v in runner.test().items()}
    return metrics


def test_runner(cfg, **test_cfg):
    cfg = copy.deepcopy(cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='all', **test_cfg)
    return Runner.from_cfg(cfg)


test_runner.__test__ = False


@pytest.mark.parametrize(
    'task, mode, batch_size', [('seg', 'slide', 2), ('depth', 'whole', 1)]
)
def test_all_stitches_equal_one_at_a_time(toy_cfg, task, mode, batch_size):
    toy_cfg.test_dataloader.batch_size = batch_size
    num_crops = 1
    if mode == 'slide':
        toy_cfg.model.test_cfg = dict(mode='slide', crop_size=(48, 48), stride=(16, 16))
        num_crops = 4
    if toy_cfg.model.test_cfg.get('flip'):
        num_crops *= 2
    runner = test_runner(toy_cfg)
    backbone = find_stitched_backbone(runner.model)
    runs = count_runs(*(b for anchor in backbone.anchors for b in anchor.blocks))
    metrics = runner.test()
    assert len(runs) == (4 // batch_size) * num_crops * count_blocks(
        backbone.space, shared=True
    )
    assert metrics == one_at_a_time(toy_cfg, runner.model.state_dict())
    key = dict(seg='mIoU', depth='RMSE')[task]
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
    runner = test_runner(toy_cfg)
    metrics = runner.test()
    assert metrics == one_at_a_time(toy_cfg, runner.model.state_dict())
    assert test_runner(toy_cfg, stitches_per_pass=5).test() == metrics


def count_runs(*modules):
    """One entry per run of a module from now on; costs are counted on meta tensors."""
    runs = []
    for module in modules:
        module.register_forward_hook(
            lambda module, args, out: None if out.is_meta else runs.append(module)
        )
    return runs


def count_batches(runner):
    return count_runs(find_stitched_backbone(runner.model).anchors[0].patch_embed)


class TestResume:
    @pytest.fixture
    def cfg(self, toy_cfg):
        toy_cfg.test_dataloader.batch_size = 1
        toy_cfg.test_dataloader.dataset.num_scenes = 12
        return toy_cfg

    def stopped_at(self, cfg, batch, **test_cfg):
        runner = test_runner(cfg, **test_cfg)
        runner.register_hook(StopBefore(batch))
        with pytest.raises(InterruptedError):
            runner.test()
        return Path(cfg.work_dir) / 'partial_test'

    def test_goes_on_where_it_stopped(self, cfg):
        whole = test_runner(cfg).test()
        partial = self.stopped_at(cfg, 11)
        runner = test_runner(cfg, resume=True)
        seen = count_batches(runner)
        assert runner.test() == whole
        assert len(seen) == 2  # ten of twelve were written
        assert not partial.exists()

    def test_finished_stitches_are_not_run_again(self, cfg):
        whole = test_runner(cfg).test()
        partial = self.stopped_at(cfg, 3)
        # As if a first pass over two of them had been through.
        done = {i: {'mIoU': 12.5, 'aAcc': 1.0, 'mAcc': 2.0} for i in (0, 1)}
        (folder,) = partial.iterdir()
        state = json.loads((folder / 'state.json').read_text())
        (folder / 'state.json').write_text(json.dumps(state | dict(finished=done)))
        metrics = test_runner(cfg, resume=True).test()
        assert metrics['stitch_0/mIoU'] == metrics['stitch_1/mIoU'] == 12.5
        assert metrics['stitch_7/mIoU'] == whole['stitch_7/mIoU']

    def test_without_resume_it_starts_anew(self, cfg):
        self.stopped_at(cfg, 11)
        runner = test_runner(cfg)
        seen = count_batches(runner)
        runner.test()
        assert len(seen) == 12

    @pytest.mark.parametrize(
        'change, differs',
        [
            (lambda c: c.randomness.update(seed=4), 'checkpoint'),
            (lambda c: c.model.test_cfg.update(mode='slide'), 'config'),
            (lambda c: c.test_dataloader.update(batch_size=2), 'batch size'),
            (lambda c: c.test_dataloader.dataset.update(indices=11), 'config, data'),
        ],
    )
    def test_another_evaluation_is_refused(self, cfg, change, differs):
        self.stopped_at(cfg, 11)
        change(cfg)
        with pytest.raises(ValueError, match=f'because of another {differs}'):
            test_runner(cfg, resume=True).test()

    def test_another_data_folder_is_another_data_set(self):
        identities = []
        for name in ('a.jpg', 'b.jpg', 'b.jpg'):
            data = BaseDataset(lazy_init=True)
            data.load_data_list = lambda name=name: [dict(img_path=name)]
            data.full_init()
            identities.append(identify_data(DataLoader(data)))
        a, b, again = identities
        assert b == again
        assert {k for k in a if a[k] != b[k]} == {'data set'}


class TestFewerImages:
    @pytest.fixture
    def cfg(self, toy_cfg):
        toy_cfg.test_dataloader.dataset.num_scenes = 10
        return toy_cfg

    def written(self, cfg, tmp_path, **test_cfg):
        out_dir = tmp_path / 'report'
        metrics = test_runner(cfg, out_dir=str(out_dir), **test_cfg).test()
        stitches = json.loads((out_dir / 'stitches.json').read_text())['stitches']
        return metrics, {s['id']: s for s in stitches}

    def test_limit_spreads_over_the_data_set(self, cfg, tmp_path):
        metrics, stitches = self.written(cfg, tmp_path, limit=4)
        assert {s['num_images'] for s in stitches.values()} == {4}
        cfg.test_dataloader.dataset.indices = [0, 2, 5, 7]
        assert metrics == test_runner(cfg).test()

    def test_screening(self, cfg, tmp_path, capsys):
        everything = test_runner(cfg).test()
        few = test_runner(cfg, limit=3).test()
        metrics, stitches = self.written(cfg, tmp_path, screen=3, keep=1)
        kept = {i for i, s in stitches.items() if s['num_images'] == 10}
        assert {0, 1} < kept < set(stitches)
        for i in stitches:
            expected = everything if i in kept else few
            assert metrics[f'stitch_{i}/mIoU'] == expected[f'stitch_{i}/mIoU']
        assert 'images' in capsys.readouterr().out

    def test_a_crash_after_the_screening_does_not_repeat_it(self, cfg, tmp_path):
        metrics = test_runner(cfg, screen=3, keep=1).test()
        runner = test_runner(cfg, screen=3, keep=1)
        runner.register_hook(StopBefore(4))
        with pytest.raises(InterruptedError):
            runner.test()
        runner = test_runner(cfg, screen=3, keep=1, resume=True)
        seen = count_batches(runner)
        assert runner.test() == metrics
        assert len(seen) == 5


def test_pictures_get_a_folder_per_stitch(toy_cfg, tmp_path):
    test_runner(toy_cfg, show_dir=str(tmp_path / 'show'), limit=2).test()
    pictures = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob('show/*/*'))
    ids = sorted(str(i) for i in (*range(5), *range(6, 15)))
    assert pictures == [
        f'show/stitch_{i}/{name}.png' for i in ids for name in ('000000', '000002')
    ]
    assert len({Path(tmp_path / p).read_bytes() for p in pictures}) > 20


def test_class_tables_go_to_the_file_only(toy_cfg, capfd):
    toy_cfg.log_level = 'INFO'
    runner = test_runner(toy_cfg)
    runner.test()
    assert 'per class results' not in capfd.readouterr().err
    log = next(Path(runner.log_dir).glob('*.log')).read_text()
    assert log.count('per class results') == 14
    assert 'stitch 9:' in log


def test_batch_norm_is_recalibrated_per_stitch(toy_cfg, tmp_path):
    mixed = test_runner(toy_cfg).test()
    runner = test_runner(toy_cfg, recalibrate_bn=6, out_dir=str(tmp_path / 'report'))
    before = {k: v.clone() for k, v in runner.model.state_dict().items()}
    metrics = runner.test()
    statistics = torch.load(tmp_path / 'report' / 'bn_statistics.pth')
    assert sorted(statistics) == [*range(5), *range(6, 15)]
    assert all(torch.equal(v, before[k]) for k, v in runner.model.state_dict().items())
    alone = one_at_a_time(toy_cfg, before, statistics[9], ids=[9])
    assert alone['stitch_9/mIoU'] == metrics['stitch_9/mIoU']
    assert metrics['stitch_9/mIoU'] != mixed['stitch_9/mIoU']


@pytest.mark.parametrize(
    ('key', 'value', 'message'),
    [
        ('test_evaluator.output_dir', 'o', "'o'.*14 stitches would overwrite"),
        ('train_dataloader', None, 'config key: train_dataloader'),
        ('test_cfg.limit', 0, 'limit=0; allowed: 1 or more'),
        ('test_cfg.screen', 0.5, 'screen=0.5; allowed: 1 or more'),
    ],
)
def test_bad_settings_are_refused(toy_cfg, key, value, message):
    toy_cfg.test_cfg = dict(type='StitchTestLoop', stitches='all', recalibrate_bn=2)
    toy_cfg.merge_from_dict({key: value})
    if value is None:
        toy_cfg[key] = None
        toy_cfg.train_cfg = toy_cfg.optim_wrapper = toy_cfg.param_scheduler = None
    with pytest.raises(ValueError, match=message):
        Runner.from_cfg(toy_cfg).test()
