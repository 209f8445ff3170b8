"""Batch norm statistics of each stitch in trainings, checkpoints and tests."""

import re

import numpy as np
import pytest
import torch
from equality import assert_same
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.runner import Runner
from small import small
from torch import nn
from watching_hooks import in_folder, train

from snnet_mm.evaluation import recalibrate_bn
from snnet_mm.models import StitchBatchNorm, known_stitches, set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.models.layers.stitch_batch_norm import ROWS
from snnet_mm.training import statistics_hook
from snnet_mm.utils import load_weights_only

OFF = 'default_hooks.stitch_statistics.num_images'


def statistics_in(checkpoint):
    """The statistics of a checkpoint's only norm, by stitch id."""
    state, found = checkpoint['state_dict'], {}
    for name in (k.removesuffix('.known') for k in state if k.endswith('.known')):
        means, variances, known = (state[f'{name}.{key}'] for key in ROWS)
        for i in known.nonzero().flatten().tolist():
            found[i] = {name: torch.stack([means[i], variances[i]])}
    return found


class Watch(Hook):
    """Notes of which stitches a checkpoint that is written now has statistics."""

    priority = 'LOWEST'

    def __init__(self):
        self.seen = []

    def after_val_epoch(self, runner, metrics=None):
        self.seen.append(sorted(known_stitches(runner.model)))


@pytest.fixture(scope='module')
def cfg(tmp_path_factory):
    """Two iterations without random augmentation, each with a validation."""
    cfg = small('tiny')
    cfg.work_dir = str(tmp_path_factory.mktemp('training'))
    cfg.train_dataloader.dataset.pipeline = [dict(type='PackSegInputs')]
    cfg.train_cfg.update(max_iters=2, val_interval=1)
    cfg.val_cfg.stitches = [1, 2]
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='all')
    cfg.default_hooks.checkpoint.max_keep_ckpts = -1
    return cfg


def trained(cfg, name, *hooks, **changes):
    """Train in a folder of its own; give the runner and its checkpoints."""
    cfg = in_folder(cfg, name, **changes)
    runner, _ = train(cfg, *hooks)
    return runner, [load_weights_only(f'{cfg.work_dir}/iter_{i}.pth') for i in (1, 2)]


@pytest.fixture(scope='module')
def training(cfg):
    """Runner, checkpoints, test results, and stitches with statistics when seen."""
    watch = Watch()
    runner, checkpoints = trained(cfg, 'own', watch)
    return runner, checkpoints, runner.test(), watch.seen


@torch.no_grad()
def moments_of_the_head(runner, state_dict, stitch_id):
    """Moments of what enters the head's norm, of two random batches of two images."""
    model, dataset = runner.model.eval(), runner.train_dataloader.dataset
    model.load_state_dict(state_dict)
    set_stitch(model, stitch_id)
    ((name, norm),) = (
        (n, m) for n, m in model.named_modules() if isinstance(m, StitchBatchNorm)
    )
    seen, chosen = [], np.random.default_rng(runner.seed).permutation(4).tolist()
    hook = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for pair in (chosen[:2], chosen[2:]):
        model.test_step(pseudo_collate([dataset[i] for i in pair]))
    hook.remove()
    moments = [torch.stack([x.mean((0, 2, 3)), x.var((0, 2, 3))]) for x in seen]
    return {name: sum(moments) / 2}


def check_statistics(runner, before, last):
    assert statistics_in(before) == {}
    found = statistics_in(last)
    assert sorted(found) == [*runner.model.backbone.space.ids]
    for stitch_id in (0, 1, 4):
        wanted = moments_of_the_head(runner, last['state_dict'], stitch_id)
        torch.testing.assert_close(found[stitch_id], wanted)


def test_stitch_statistics_hook_saves_to_checkpoints(training):
    """Statistics of validated stitches, and in the last one those of all."""
    runner, checkpoints, _, seen = training
    check_statistics(runner, *checkpoints)
    assert seen == [[1, 2], [0, 1, 2, 4]]


def test_stitch_statistics_hook_of_averaged_models(cfg):
    """mmpretrain's hook validates the trained weights after those of the average."""
    average = dict(type='mmpretrain.EMAHook', evaluate_on_origin=True)
    changes = dict(custom_hooks=[dict(average, momentum=0.5)])
    for name in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        changes[name] = None
    runner, checkpoints = trained(cfg, 'averaged', **changes)
    check_statistics(runner, *checkpoints)


@pytest.mark.parametrize(
    'average',
    [
        dict(type='EMAHook'),
        dict(type='mmpretrain.EMAHook'),
        dict(type='EMAHook', ema_type='StochasticWeightAverage'),
        dict(type='EMAHook', priority='LOWEST'),
        dict(type='EMAHook', begin_iter=1),
    ],
    ids=['mmengine', 'mmpretrain', 'swa', 'late', 'begin'],
)
def test_stitch_statistics_hook_of_averaged_buffers(cfg, average):
    """They are those of the averaged weights, and change neither these nor others."""
    hooks = [dict(average, update_buffers=True)]
    name = '-'.join(map(str, average.values()))
    runner, own = trained(cfg, f'buffers-{name}', custom_hooks=hooks)
    check_statistics(runner, *own)
    if average.get('priority') == 'LOWEST':
        return  # it averages after mmengine's hook has written, and before ours has
    off = dict(custom_hooks=hooks) | {OFF: 0}
    _, mixed = trained(cfg, f'buffers-off-{name}', **off)
    for kind in ('state_dict', 'ema_state_dict'):
        with_own, without = dict(own[1][kind]), dict(mixed[1][kind])
        for key in with_own.keys() - without.keys():
            assert key.endswith(ROWS)
            del with_own[key]
        assert_same(with_own, without)


def test_stitch_statistics_hook_leaves_training_alone(cfg, training):
    _, own, *_ = training
    _, mixed = trained(cfg, 'mixed', **{OFF: 0})
    for with_own, without in zip(own, mixed, strict=True):
        states = [dict(found['state_dict']) for found in (with_own, without)]
        rows = states[0].keys() - states[1].keys()
        assert len(rows) == 3
        assert all(key.endswith(ROWS) for key in rows)
        assert_same({k: states[0][k] for k in states[1]}, states[1])
        assert_same(with_own['optimizer'], without['optimizer'])


def test_stitch_statistics_hook_serves_tests_and_models(training):
    """Tests and models of a checkpoint have its statistics."""
    runner, (_, last), wanted, _ = training
    cfg, own = runner.cfg.copy(), statistics_in(last)
    path = cfg.load_from = f'{cfg.work_dir}/iter_2.pth'
    assert Runner.from_cfg(cfg.copy()).test() == wanted
    cfg.merge_from_dict({OFF: 0})
    cfg.experiment_name += '_without'
    assert Runner.from_cfg(cfg.copy()).test() != wanted
    images, plain = torch.randn(2, 3, 32, 32), init_model(cfg, path)
    assert plain.state_dict().keys() == {
        k for k in last['state_dict'] if not k.endswith(ROWS)
    }
    cfg.default_hooks.pop('stitch_statistics')  # as of a checkpoint that others trained
    model = init_model(cfg, path)
    assert_same(dict(model.state_dict()), dict(last['state_dict']))
    (norm,) = (m for m in plain.modules() if isinstance(m, nn.BatchNorm2d))
    for stitch_id in (0, 4):
        for each in (model, plain):
            set_stitch(each, stitch_id)
        assert not model(images).equal(plain(images))
        ((norm.running_mean, norm.running_var),) = own[stitch_id].values()
        assert model(images).equal(plain(images))


def in_older_layout(checkpoint):
    """As before statistics were buffers: rows of known stitches, and their ids."""
    state = dict(checkpoint['state_dict'])
    (name,) = (k.removesuffix('.known') for k in state if k.endswith('.known'))
    ids = state.pop(f'{name}.known').nonzero().flatten()
    for key in ROWS[:2]:
        state[f'{name}.{key}'] = state[f'{name}.{key}'][ids]
    return dict(checkpoint, state_dict=state | {f'{name}.stitch_ids': ids})


def test_stitch_statistics_hook_loads_older_checkpoints(training, tmp_path):
    runner, (_, last), wanted, _ = training
    cfg, path = runner.cfg.copy(), tmp_path / 'older.pth'
    torch.save(in_older_layout(last), path)
    cfg.load_from, cfg.experiment_name = str(path), f'{cfg.experiment_name}_older'
    assert Runner.from_cfg(cfg).test() == wanted
    model = init_model(cfg, path)
    assert_same(dict(model.state_dict()), dict(last['state_dict']))


class Stopped(Exception):
    """Ends a training as a killed process would, but in this one."""


BEST = {'default_hooks.checkpoint.save_best': 'mIoU'}
STOPPED = dict(
    by_iteration=dict.fromkeys(('val_cfg', 'val_dataloader', 'val_evaluator')),
    validated=BEST,
    by_epoch={
        'train_cfg': dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=1),
        'train_dataloader.sampler.of': 'DefaultSampler',
        'default_hooks.checkpoint.by_epoch': True,
    },
)


@pytest.mark.parametrize('kind', [*STOPPED])
def test_stitch_statistics_hook_writes_the_checkpoint_first(cfg, kind, monkeypatch):
    """One that is stopped leaves it, usable, and is completed when it is resumed."""
    cfg = in_folder(cfg, f'stopped_{kind}', **STOPPED[kind])
    name = 'epoch_1.pth' if kind == 'by_epoch' else 'iter_2.pth'
    path = f'{cfg.work_dir}/{name}'

    def stop(model, batches, ids, mode):
        if len(ids) > 2:
            raise Stopped
        return recalibrate_bn(model, batches, ids, mode)

    with monkeypatch.context() as patch:
        patch.setattr(statistics_hook, 'recalibrate_bn', stop)
        with pytest.raises(RuntimeError, match='Stopped.*stitch_statistics.num_images'):
            train(cfg)
    left = load_weights_only(path)
    assert statistics_in(left) == {}
    cfg.load_from, cfg.resume = path, True
    cfg.experiment_name += '_resumed'
    runner, _ = train(cfg)
    found = load_weights_only(path)
    check_statistics(runner, left, found)
    plain = {k: v for k, v in left['state_dict'].items() if not k.endswith(ROWS)}
    assert_same({k: found['state_dict'][k] for k in plain}, plain)
    assert_same(found['optimizer'], left['optimizer'])
    assert found['meta']['iter'] == left['meta']['iter'] == 2
    # What is complete is not estimated again.
    monkeypatch.setattr(statistics_hook, 'recalibrate_bn', stop)
    cfg.experiment_name += '_again'
    train(cfg)


def test_stitch_statistics_hook_completes_the_best_of_the_last_validation(cfg):
    """And tests give what was validated."""
    cfg = in_folder(cfg, 'best', **BEST, **{'train_cfg.val_interval': 2})
    runner, _ = train(cfg)
    last = load_weights_only(f'{cfg.work_dir}/iter_2.pth')
    best = load_weights_only(f'{cfg.work_dir}/best_mIoU_iter_2.pth')
    assert_same(dict(best['state_dict']), dict(last['state_dict']))
    validated = runner.val_loop.run()
    assert len(statistics_in(last)) == 4
    tested = runner.test()
    for name in ('stitch_1/mIoU', 'stitch_2/mIoU'):
        assert tested[name] == validated[name]


@pytest.mark.parametrize(
    'num_images, max_runs, used', [(4, 4000, 4), (200, 4000, 4), (4, 8, 2), (3, 12, 4)]
)
def test_stitch_statistics_hook_says_how_many_images(
    training, monkeypatch, num_images, max_runs, used
):
    """Many stitches share fewer images, and no more than there are: four, in pairs."""
    runner, *_ = training
    monkeypatch.setattr(statistics_hook, 'MAX_RUNS', max_runs)
    monkeypatch.setattr(statistics_hook, 'MIN_IMAGES', 2)
    lines = []
    monkeypatch.setattr(runner.logger, 'info', lines.append)
    hook = statistics_hook.StitchStatisticsHook(num_images)
    batches = [*hook._batches(runner, 4)]
    assert sum(len(batch['inputs']) for batch in batches) == used
    assert f'of 4 stitches on {used} images' in lines[0]
    etas = [re.search('batch 1 of 2, .* eta', line) for line in lines[1:]]
    assert [bool(eta) for eta in etas] == [True] * (used // 2 - 1)
