"""Batch norm statistics of each stitch: by hand, in trainings, checkpoints, tests."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from equality import assert_same
from mmengine.dataset import pseudo_collate
from mmengine.hooks import Hook
from mmengine.model import BaseDataPreprocessor, BaseModel
from mmengine.runner import Runner
from staged_anchors import disturb, resnet
from tiny import tiny_config
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from watching_hooks import in_folder, train

from snnet_mm.evaluation.per_stitch_bn import known_stitches, recalibrate_bn
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import SandwichWrapper, SNNetv1, set_statistics, set_stitch
from snnet_mm.models.layers.stitch_batch_norm import ROWS
from snnet_mm.stitching import visiting_order
from snnet_mm.utils import load_weights_only

NORM = 'head.bn'


class Model(BaseModel):
    def __init__(self, backbone):
        super().__init__(BaseDataPreprocessor())
        parts = dict(conv=nn.Conv2d(12, 5, 1), drop=nn.Dropout(0.5))
        parts['bn'] = nn.BatchNorm2d(5)
        self.backbone, self.head = backbone, nn.ModuleDict(parts)

    def forward(self, inputs, mode='tensor'):
        x = self.head.conv(self.backbone(inputs)[0])
        return self.head.bn(self.head.drop(x))


@pytest.fixture
def model(build_snnet):
    return Model(build_snnet(anchor=dict(drop_path_rate=0.5))).train()


@pytest.fixture
def batches():
    return [dict(inputs=torch.randn(4, 3, 32, 32)) for _ in range(3)]


@torch.no_grad()
def by_hand(model, batches, stitch_id):
    """Mean and variance of what the stitch sends into the batch norm."""
    set_stitch(model.eval(), stitch_id)
    x = [model.head.conv(model.backbone(b['inputs'])[0]) for b in batches]
    moments = [torch.stack([y.mean((0, 2, 3)), y.var((0, 2, 3))]) for y in x]
    return {NORM: sum(moments) / len(moments)}


def test_recalibrate_bn_statistics_of_each_stitch(model, batches):
    set_stitch(model, 3)
    before = deepcopy(dict(model.state_dict()))
    statistics = recalibrate_bn(model, batches, (7, 0, 1))
    assert sorted(statistics) == [0, 1, 7]
    # Nothing else has changed.
    assert model.backbone.active_stitch.id == 3
    assert all(m.training for m in model.modules())
    assert model.head.bn.momentum == 0.1
    assert_same(dict(model.state_dict()), before)
    for stitch_id, values in statistics.items():
        torch.testing.assert_close(values, by_hand(model, batches, stitch_id))
    means = [values[NORM][0] for values in statistics.values()]
    assert not torch.allclose(means[0], means[1], rtol=0.1)
    model.auxiliary_head = nn.ModuleDict(dict(bn=nn.BatchNorm2d(3)))
    assert_same(recalibrate_bn(model, batches, (7, 0, 1)), statistics)


def test_stitch_batch_norm_follows_stitch_in_eval(model, batches):
    norm, mixed = model.eval().head.bn, model.head.bn.running_mean.clone()
    keys, statistics = list(model.state_dict()), recalibrate_bn(model, batches, (0, 7))
    for held in (model, SandwichWrapper(model)):
        set_statistics(held, statistics)
        for stitch_id in (7, 0):
            set_stitch(held, stitch_id)
            assert torch.equal(norm.running_mean, statistics[stitch_id][NORM][0])
            assert torch.equal(norm.running_var, statistics[stitch_id][NORM][1])
            assert norm.train().running_mean.equal(mixed)
            plain = norm.eval().merged()
            assert type(plain) is nn.BatchNorm2d
            assert plain.state_dict().keys() == nn.BatchNorm2d(5).state_dict().keys()
            assert torch.equal(plain.running_var, statistics[stitch_id][NORM][1])
        set_stitch(held, 3)
        assert torch.equal(norm.running_mean, mixed)
        state = model.state_dict()
        assert state.keys() - {*keys} == {f'head.bn.{name}' for name in ROWS}
        assert torch.equal(state['head.bn.running_mean'], mixed)
        set_statistics(held, {})
        assert list(model.state_dict()) == keys


def test_stitch_batch_norm_state_dict_round_trip(model, batches):
    own = recalibrate_bn(model.eval(), batches, (7, 0))
    set_statistics(model, own)
    state = deepcopy(model.state_dict())
    assert state['head.bn.stitch_ids'].tolist() == [0, 7]
    assert torch.equal(state['head.bn.stitch_mean'][1], own[7][NORM][0])
    set_statistics(model, {})
    model.load_state_dict(state)
    set_stitch(model.double(), 7)
    assert model.head.bn.running_var.equal(own[7][NORM][1].double())
    assert deepcopy(model).head.bn.running_var.equal(own[7][NORM][1].double())
    # A state dict without statistics is one of other weights.
    model.load_state_dict({k: v for k, v in state.items() if '.stitch_' not in k})
    assert known_stitches(model) == set()
    assert model.head.bn.running_var.equal(state['head.bn.running_var'].double())


class Classifier(BaseModel):
    """A head with an end per anchor, as StitchedClsHead has it."""

    def __init__(self, backbone, widths):
        super().__init__(BaseDataPreprocessor())
        self.backbone = backbone
        self.anchor_heads = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)

    def forward(self, inputs, mode='tensor'):
        end = self.anchor_heads[self.backbone.active_stitch.end_anchor]
        return end(self.backbone(inputs).tokens.mean(1))


@pytest.fixture
def classifier():
    pytest.importorskip('timm')
    pair = [resnet(), resnet('resnet50')]
    backbone = disturb(SNNetv1(pair, stages=(1,), out='end'))
    return Classifier(backbone, (20, 80)).eval()


@torch.no_grad()
def test_recalibrate_bn_of_anchors_with_batch_norms(classifier, batches):
    backbone = classifier.backbone
    statistics = recalibrate_bn(classifier, batches, backbone.space.ids)
    for stitch_id in (1, 2, 4):
        alone = deepcopy(classifier)
        set_stitch(alone, stitch_id)
        norms = {n: m for n, m in alone.named_modules() if isinstance(m, _BatchNorm)}
        for norm in norms.values():
            norm.momentum = None
            norm.train().reset_running_stats()
        for batch in batches:
            alone(batch['inputs'])
        run = {n: m for n, m in norms.items() if m.num_batches_tracked}
        wanted = {
            name: torch.stack([norm.running_mean, norm.running_var])
            for name, norm in run.items()
        }
        assert len(run) < len(norms)
        torch.testing.assert_close(statistics[stitch_id], wanted)
    # Where only some have their own, stitches that begin alike differ all the same.
    set_statistics(classifier, {i: statistics[i] for i in (0, 3)})
    images, alone = batches[0]['inputs'], {}
    for i in backbone.space.ids:
        set_stitch(classifier, i)
        alone[i] = classifier(images)
    with backbone.sharing_prefixes():
        for stitch in visiting_order(backbone.space):
            set_stitch(classifier, stitch.id)
            assert classifier(images).equal(alone[stitch.id])


def test_recalibrate_bn_leaves_frozen_norms_alone(classifier, batches):
    """As those of mmdet's ResNets, which are in eval mode in training."""

    def train(mode=True):
        nn.Module.train(classifier.backbone, mode)
        classifier.backbone.anchors[1].eval()
        return classifier.backbone

    classifier.backbone.train = train
    statistics = recalibrate_bn(classifier.train(), batches, (1, 2))
    names = {name for values in statistics.values() for name in values}
    assert names
    assert not [name for name in names if 'anchors.1.' in name]


# --- trainings, checkpoints and tests

OFF = 'default_hooks.stitch_statistics.num_images'


def statistics_in(checkpoint):
    """The statistics of a checkpoint's only norm, by stitch id."""
    state, found = checkpoint['state_dict'], {}
    for name in (k.removesuffix('.stitch_ids') for k in state if 'stitch_ids' in k):
        ids, means, variances = (state[f'{name}.{key}'] for key in ROWS)
        for i, *moments in zip(ids.tolist(), means, variances, strict=True):
            found[i] = {name: torch.stack(moments)}
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
    cfg = tiny_config()
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
        (n, m) for n, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)
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
    changes = dict(custom_hooks=[dict(average, momentum=0.5, update_buffers=True)])
    for name in ('val_cfg', 'val_dataloader', 'val_evaluator'):
        changes[name] = None
    runner, checkpoints = trained(cfg, 'averaged', **changes)
    check_statistics(runner, *checkpoints)


def test_stitch_statistics_hook_leaves_training_alone(cfg, training):
    _, own, *_ = training
    _, mixed = trained(cfg, 'mixed', **{OFF: 0})
    for with_own, without in zip(own, mixed, strict=True):
        states = [dict(found['state_dict']) for found in (with_own, without)]
        rows = [key for key in states[0] if key.endswith(ROWS)]
        for key in rows:
            del states[0][key]
        assert_same(*states)
        assert_same(with_own['optimizer'], without['optimizer'])
    assert len(rows) == 3  # of the last one
    assert statistics_in(mixed[1]) == {}


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
