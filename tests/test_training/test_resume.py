"""A training goes on from the newest checkpoint that can be read and fits."""

import os
from copy import deepcopy

import pytest
import torch
from line_runner import build_runner, train
from mmengine.config import Config

from snnet_mm.training.resume import differences
from snnet_mm.utils import guard_checkpoints


@pytest.fixture
def trained(tmp_path):
    """A folder with three checkpoints; the time they were written tells their order."""
    train(tmp_path)
    for i in (1, 2, 3):
        os.utime(tmp_path / f'iter_{i}.pth', (i, i))
    return tmp_path


def cut(folder, i=3):
    path = folder / f'iter_{i}.pth'
    path.write_bytes(path.read_bytes()[:-100])


def lose_blocks(folder):
    """As after a power cut: the length is right, a weight is not."""
    path = folder / 'iter_3.pth'
    weight = torch.load(path, weights_only=False)['state_dict']['linear.weight']
    content = path.read_bytes()
    assert content.count(weight.numpy().tobytes()) == 1
    path.write_bytes(content.replace(weight.numpy().tobytes(), bytes(4)))


def write_longer_one_before(folder):
    """The clock tells what is newest."""
    os.utime(folder / 'iter_3.pth', (0, 0))


def keep_the_best(folder):
    """It holds too little to resume."""
    (folder / 'iter_3.pth').rename(folder / 'best_mIoU_iter_3.pth')


def resumed_from(folder, caplog):
    """The checkpoint that training goes on from, and what was said about it."""
    runner = build_runner(folder, iters=4, resume=True)
    runner.logger.setLevel('INFO')
    runner.logger.addHandler(caplog.handler)
    runner.train()
    said = [m for m in caplog.messages if m.startswith(('Resuming', 'There'))]
    return runner._resume and runner._load_from, ' '.join(said)


@pytest.mark.parametrize(
    'damage, note, start',
    [
        (None, 'iter_3.pth', 3),
        (None, '', 3),
        (None, None, 3),
        (None, 'iter_9.pth', 3),
        (cut, 'iter_3.pth', 2),
        (lose_blocks, 'iter_3.pth', 2),
        (write_longer_one_before, None, 2),
        (keep_the_best, 'iter_3.pth', 2),
    ],
)
def test_the_last_checkpoint_or_the_newest_readable_one(
    trained, caplog, damage, note, start
):
    path = trained / 'last_checkpoint'
    if note is None:
        path.unlink()
    else:
        path.write_text(note and f'{trained}/{note}')
    if damage:
        damage(trained)
    found, said = resumed_from(trained, caplog)
    assert found == f'{trained}/iter_{start}.pth'
    if note == f'iter_{start}.pth':
        assert said == f'Resuming from {trained}/{note}, as last_checkpoint says.'
    else:
        names = f'names {trained}/{note}' if note else 'is missing or empty'
        assert said == (
            f'Resuming from {trained}/iter_{start}.pth, the newest readable '
            f'checkpoint: {path} {names}.'
        )


def test_the_checkpoint_is_read_once(trained, monkeypatch):
    read, load = [], torch.load
    monkeypatch.setattr(torch, 'load', lambda f, **kw: read.append(f) or load(f, **kw))
    with guard_checkpoints():
        runner = train(trained, iters=4, resume=True)
    assert (runner.iter, read) == (4, [trained / 'iter_3.pth'])


@pytest.mark.parametrize('cut_one', [False, True])
def test_an_empty_folder_starts_from_scratch(tmp_path, caplog, cut_one):
    if cut_one:
        train(tmp_path, iters=1)
        cut(tmp_path, 1)
        (tmp_path / 'last_checkpoint').write_text('')
    said = f'There is no readable checkpoint in {tmp_path}: starting from scratch.'
    assert resumed_from(tmp_path, caplog) == (False, said)


def test_nothing_readable_although_one_is_named(trained):
    for i in (1, 2, 3):
        cut(trained, i)
    with pytest.raises(ValueError, match='to start from scratch') as error:
        train(trained, resume=True)
    for i in (1, 2, 3):
        assert f'{trained}/iter_{i}.pth is truncated' in str(error.value)
    assert f'{trained}/last_checkpoint names {trained}/iter_3.pth' in str(error.value)


FOREIGN = dict(model=dict(fc=torch.ones(1)))
HALF = dict(state_dict={'linear.weight': torch.ones(1, 1)})
WEIGHTS = dict(state_dict=dict(HALF['state_dict'], **{'linear.bias': torch.ones(1)}))
NO_OPTIMIZER = 'a checkpoint with epoch, iter, message_hub, meta, optimizer; .*resume='


@pytest.mark.parametrize(
    'checkpoint, changes, message',
    [
        (FOREIGN, {}, r'some.pth is of another model.*load_from'),
        (HALF, dict(width=2, resume=True), r'has shape \(1, 1\), the model has .*2'),
        (HALF, dict(resume=True), r"lacks 1 parameters.*\['linear.bias'\]"),
        (WEIGHTS, dict(resume=True), NO_OPTIMIZER),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, checkpoint, changes, message):
    path = tmp_path / 'some.pth'
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=message):
        train(tmp_path, load_from=str(path), **changes)
    torch.save(HALF, path)  # a training may start from a part
    assert train(tmp_path, load_from=str(path)).iter == 3


def train_with(optimizer, folder, **kwargs):
    torch.manual_seed(0)
    wrapper = dict(optimizer=dict(lr=0.1, **optimizer))
    return train(folder, width=3, optim_wrapper=wrapper, **kwargs)


@pytest.mark.parametrize('kind', ['SGD', 'AdamW', torch.optim.Adafactor])
def test_state_of_any_shape_is_resumed(tmp_path, kind):
    """Adafactor keeps factored moments, and others of vectors than of matrices."""
    kind = dict(type=kind)
    straight = train_with(kind, tmp_path / 'straight', iters=4).model.state_dict()
    train_with(kind, tmp_path / 'cut', iters=2)
    resumed = train_with(kind, tmp_path / 'cut', iters=4, resume=True)
    for key, value in resumed.model.state_dict().items():
        assert value.equal(straight[key])


OLD = dict(
    model=dict(type='A'),
    optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, betas=(0.9, 0.99))),
    param_scheduler=[dict(type='LinearLR', end=4)],
    train_cfg=dict(max_iters=8),
    train_dataloader=dict(batch_size=2, dataset=dict(type='A')),
    randomness=dict(seed=3),
)


@pytest.mark.parametrize(
    ('changes', 'lines'),
    [
        ({}, []),
        ({'model.type': 'B', 'train_dataloader.dataset.type': 'B'}, []),
        ({'optim_wrapper.optimizer.betas': [0.9, 0.99]}, []),
        (
            {'optim_wrapper.optimizer.lr': 0.2},
            ['optim_wrapper.optimizer.lr=0.2 (was 0.1)'],
        ),
        (
            {'optim_wrapper.paramwise_cfg.custom_keys': {'a.b': dict(lr_mult=2)}},
            ["optim_wrapper.paramwise_cfg.custom_keys.'a.b'.lr_mult=2 (was none)"],
        ),
        (
            dict(param_scheduler=[dict(type='LinearLR', end=8), dict(type='B')]),
            [
                'param_scheduler.0.end=8 (was 4)',
                "param_scheduler.1.type='B' (was none)",
            ],
        ),
        (
            {'train_cfg.max_iters': 9, 'train_dataloader.batch_size': 8},
            ['train_cfg.max_iters=9 (was 8)', 'train_dataloader.batch_size=8 (was 2)'],
        ),
        ({'randomness.seed': None}, ['randomness.seed=None (was 3)']),
    ],
)
def test_differences_between_configs(changes, lines):
    new = Config(deepcopy(OLD))
    new.merge_from_dict(changes)
    assert differences(Config(OLD).pretty_text, new.pretty_text) == lines


@pytest.mark.parametrize('text', [None, '', 'a = f(1'])
def test_differences_unknown_config(text):
    assert differences(text, Config(OLD).pretty_text) == []


def test_resumed_training_says_what_differs_from_the_checkpoint(tmp_path, caplog):
    def cfg(seed):
        return Config(dict(OLD, randomness=dict(seed=seed)))

    train(tmp_path, iters=1, cfg=cfg(3))
    runner = build_runner(tmp_path, iters=2, resume=True, cfg=cfg(4))
    runner.logger.setLevel('WARNING')
    runner.logger.addHandler(caplog.handler)
    runner.train()
    (said,) = (m for m in caplog.messages if m.startswith('Resumed with '))
    assert said.startswith('Resumed with randomness.seed=4 (was 3). The optimizer, the')
