"""A training goes on from the newest checkpoint that can be read and fits."""

import os

import pytest
import torch
from line_runner import build_runner, train

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


def test_the_state_of_other_parameters_is_refused(tmp_path):
    """As of another config, which freezes others or orders them in another way."""
    train_with(dict(type='AdamW'), tmp_path)
    path = tmp_path / 'iter_3.pth'
    checkpoint = torch.load(path, weights_only=False)
    state = checkpoint['optimizer']['state']
    state[0], state[1] = state[1], state[0]
    message = 'allowed: one with the state of these trained parameters'
    for params in ([0, 1], [0]):
        checkpoint['optimizer']['param_groups'][0]['params'] = params
        torch.save(checkpoint, path)
        with pytest.raises(ValueError, match=message):
            train_with(dict(type='AdamW'), tmp_path, iters=4, resume=True)


def said_on_resuming(caplog, folder, old, new):
    """The differences that are logged if a training goes on with other settings."""
    train(folder, iters=2, **old)
    runner = build_runner(folder, iters=new.pop('iters', 2), resume=True, **new)
    runner.logger.setLevel('WARNING')
    runner.logger.addHandler(caplog.handler)
    runner.train()
    lines = [m for m in caplog.messages if m.startswith('Resumed with ')]
    return [line.removeprefix('Resumed with ') for line in lines], runner


def sgd(lr=0.1, **more):
    return dict(optimizer=dict(type='SGD', lr=lr, momentum=0.9, **more))


def falling(**more):
    return dict(type='LinearLR', start_factor=0.5, by_epoch=False, **more)


RATE = 'optim_wrapper.optimizer.lr: 0.1 of the checkpoint goes on, not 0.2 of the confi'
BIAS = dict(paramwise_cfg=dict(bias_lr_mult=2))
TWICE = dict(paramwise_cfg=dict(bias_lr_mult=4))


@pytest.mark.parametrize(
    ('old', 'new', 'lines'),
    [
        ({}, {}, []),
        ({}, dict(optim_wrapper=sgd(0.2)), [RATE]),
        (  # the rate at this moment is another, that of the config is the same
            dict(param_scheduler=falling(end=4)),
            dict(param_scheduler=falling(end=4)),
            [],
        ),
        (
            dict(param_scheduler=falling(end=4)),
            dict(param_scheduler=falling(end=8), optim_wrapper=sgd(0.2)),
            [RATE, 'param_scheduler.0.end: 4 of the checkpoint goes on, not 8'],
        ),
        (
            dict(param_scheduler=falling(end=4)),
            dict(param_scheduler=dict(type='ExponentialLR', gamma=0.5, by_epoch=False)),
            [
                'param_scheduler.0: ExponentialLR of the config; the checkpoint had '
                'none of gamma',
                'param_scheduler.0.end: 4 of',
            ],
        ),
        (
            dict(param_scheduler=falling(end=4)),
            dict(param_scheduler=[falling(end=4), falling(begin=4, end=6)]),
            ['param_scheduler: 2 of the config; the checkpoint had 1'],
        ),
        (
            {},
            dict(optim_wrapper=sgd(weight_decay=0.3, nesterov=True)),
            [
                'optim_wrapper.optimizer.nesterov: False of the checkpoint goes on',
                'optim_wrapper.optimizer.weight_decay: 0 of the checkpoint goes on',
            ],
        ),
        (
            dict(optim_wrapper=sgd() | BIAS),
            dict(optim_wrapper=sgd() | TWICE),
            [
                'optim_wrapper.optimizer.lr: 0.2 of the checkpoint goes on, not 0.4 of '
                'the config (in 1 of 2 groups)'
            ],
        ),
        ({}, dict(iters=5), ['train_cfg.max_iters: 5 of the config applies; the che']),
    ],
)
def test_what_a_resumed_checkpoint_changes_is_said(tmp_path, caplog, old, new, lines):
    found, _ = said_on_resuming(caplog, tmp_path, old, new)
    assert len(found) == len(lines)
    for line, wanted in zip(found, lines, strict=True):
        assert line.startswith(wanted)


def test_the_seed_and_the_batch_size_of_a_checkpoint(tmp_path):
    train(tmp_path, iters=1)
    path = tmp_path / 'iter_1.pth'
    checkpoint = torch.load(path, weights_only=False)
    text = "a = 1\ntrain_dataloader = dict(sampler=dict(type='A'), batch_size=2)\n"
    checkpoint['message_hub']['runtime_info']['cfg'] = text
    checkpoint['meta']['seed'] = 3
    runner = build_runner(tmp_path, iters=1)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    runner.cfg.merge_from_dict({'randomness.seed': 4, 'train_dataloader.batch_size': 8})
    assert [*differences(checkpoint, runner)] == [
        'randomness.seed: 3 of the checkpoint goes on, not 4 of the config, but for '
        'the order of the data',
        'train_dataloader.batch_size: 8 of the config applies; the checkpoint had 2',
    ]
    checkpoint['message_hub']['runtime_info']['cfg'] = 'train_dataloader = f(1'
    assert len([*differences(checkpoint, runner)]) == 1


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    train_with(dict(type='SGD'), tmp_path)
    with pytest.raises(ValueError, match='checkpoint of AdamW, with .*betas.*resume='):
        train_with(dict(type='AdamW'), tmp_path, iters=4, resume=True)
