"""Trainings, checkpoints and tests with batch norm statistics of each stitch."""

import numpy as np
import pytest
import torch
from equality import assert_same
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.runner import Runner
from tiny import tiny_config
from torch import nn
from watching_hooks import in_folder, train

from snnet_mm.evaluation import PerStitchBN, per_stitch_bn
from snnet_mm.integrations.init_model import init_model
from snnet_mm.models import set_stitch
from snnet_mm.utils import load_weights_only

KEY = 'stitch_statistics'
OFF = f'default_hooks.{KEY}.num_images'


@pytest.fixture
def cfg(tmp_path):
    """Two iterations, each with a validation of the anchors."""
    cfg = tiny_config()
    cfg.work_dir = str(tmp_path)
    cfg.train_cfg.update(max_iters=2, val_interval=1)
    cfg.default_hooks.checkpoint.max_keep_ckpts = -1
    return cfg


def trained(cfg, name='first', **changes):
    """Train in a folder of its own; give the runner and its checkpoints."""
    cfg = in_folder(cfg, name, **changes)
    runner, _ = train(cfg)
    return runner, [load_weights_only(f'{cfg.work_dir}/iter_{i}.pth') for i in (1, 2)]


@torch.no_grad()
def by_hand(runner, state_dict, stitch_id):
    """Moments of what enters the head's norm, of two random batches of two images."""
    model, dataset = runner.model.eval(), runner.train_dataloader.dataset
    model.load_state_dict(state_dict)
    set_stitch(model, stitch_id)
    ((name, norm),) = (
        (n, m) for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)
    )
    seen, chosen = [], np.random.default_rng(runner.seed).permutation(4).tolist()
    hook = norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    for pair in (chosen[:2], chosen[2:]):
        model.test_step(pseudo_collate([dataset[i] for i in pair]))
    hook.remove()
    mean = sum(x.mean((0, 2, 3)) for x in seen) / 2
    variance = sum(x.var((0, 2, 3)) for x in seen) / 2
    return {f'{name}.running_mean': mean, f'{name}.running_var': variance}


@pytest.fixture
def steady(cfg):
    """Without random augmentation."""
    cfg.train_dataloader.dataset.pipeline = [dict(type='PackSegInputs')]
    return cfg


@pytest.mark.parametrize(
    'average',
    [
        {},
        dict(type='EMAHook'),
        # After a validation it runs another one, on the weights that are trained.
        dict(type='mmpretrain.EMAHook', evaluate_on_origin=True),
    ],
)
def test_the_last_checkpoint_holds_those_of_all_stitches(steady, average):
    if average:
        steady.custom_hooks = [dict(average, momentum=0.5, update_buffers=True)]
        steady.val_cfg = steady.val_dataloader = steady.val_evaluator = None
    runner, (before, last) = trained(steady)
    assert KEY not in before
    found = last[KEY]
    assert sorted(found) == [*runner.model.backbone.space.ids]
    for stitch_id in (0, 1, 4):
        wanted = by_hand(runner, last['state_dict'], stitch_id)
        torch.testing.assert_close(found[stitch_id], wanted)


def test_training_does_not_see_them(cfg):
    """With a validation in between, and augmentation."""
    cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5, update_buffers=True)]
    _, own = trained(cfg)
    _, mixed = trained(cfg, 'mixed', **{OFF: 0})
    for with_own, without in zip(own, mixed, strict=True):
        for key in ('state_dict', 'optimizer', 'ema_state_dict'):
            assert_same(with_own[key], without[key])
    assert KEY not in mixed[1]


def test_tests_and_models_of_a_checkpoint_have_them(cfg, tmp_path):
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='all')
    runner, (_, last) = trained(cfg)
    wanted, mixed = runner.test(), last['state_dict']
    path = cfg.load_from = str(tmp_path / 'first/iter_2.pth')
    assert Runner.from_cfg(cfg.copy()).test() == wanted
    cfg.merge_from_dict({OFF: 0})
    cfg.experiment_name = f'{tmp_path}_without'
    assert Runner.from_cfg(cfg.copy()).test() != wanted
    images, plain = torch.randn(2, 3, 32, 32), init_model(cfg, path)
    assert_same(dict(plain.state_dict()), dict(mixed))
    cfg.default_hooks.pop(KEY)  # as of a checkpoint that others trained
    model = init_model(cfg, path)
    PerStitchBN(plain, last[KEY]).attach()
    for stitch_id in (0, 2, 4, 1):
        for each in (model, plain):
            set_stitch(each, stitch_id)
        assert model(images).equal(plain(images))
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    (here,), (key,) = norms, [k for k in mixed if k.endswith('bn.running_mean')]
    assert here.running_mean.equal(last[KEY][1][key])
    assert not here.running_mean.equal(mixed[key])


class Watch(Hook):
    """Notes of which stitches a checkpoint that is written now has statistics."""

    priority = 'LOWEST'
    seen = []

    def after_val_epoch(self, runner, metrics=None):
        checkpoint = {}
        runner.call_hook('before_save_checkpoint', checkpoint=checkpoint)
        self.seen.append(sorted(checkpoint[KEY]))


def test_the_best_checkpoint_holds_those_of_validated_stitches(cfg):
    cfg.val_cfg.stitches = [1, 2]
    cfg.custom_hooks = [dict(type=Watch)]
    trained(cfg)
    assert Watch.seen == [[1, 2], [0, 1, 2, 4]]


def test_a_failure_costs_no_training(cfg, monkeypatch):
    def fail(*_):
        raise RuntimeError('out of memory')

    monkeypatch.setattr(per_stitch_bn, 'recalibrate_bn', fail)
    runner, (_, last) = trained(cfg)
    assert KEY not in last
    assert runner.iter == 2


def test_statistics_are_of_images_as_they_are_tested(steady):
    """Not of the size that the last iteration drew."""
    sampling = steady.default_hooks.stitch_sampling
    sampling.sizes = [(16, 16)]
    runner, (_, last) = trained(steady)
    assert runner.model.backbone.input_size is None
    wanted = by_hand(runner, last['state_dict'], 1)
    torch.testing.assert_close(last[KEY][1], wanted)
