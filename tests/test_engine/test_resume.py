"""A training goes on from the newest checkpoint that can be read and fits."""

import os

import pytest
import torch
from line_runner import build_runner, train
from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.stitching import TwoWaySpace
from snnet_mm.utils import load_weights_only

# --- where training goes on


@pytest.fixture
def trained(tmp_path):
    """A folder with three checkpoints; the time they were written tells their order."""
    train(tmp_path)
    for i in (1, 2, 3):
        os.utime(tmp_path / f'iter_{i}.pth', (i, i))
    return tmp_path


def empty_note(folder):
    (folder / 'last_checkpoint').write_text('')


def no_note(folder):
    (folder / 'last_checkpoint').unlink()


def name_missing(folder):
    (folder / 'last_checkpoint').write_text(str(folder / 'iter_9.pth'))


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


def resumed_from(folder, caplog, **kwargs):
    """The iteration that training starts at, and what was said about it."""
    runner = build_runner(folder, iters=4, resume=True, **kwargs)
    runner.logger.setLevel('INFO')
    runner.logger.addHandler(caplog.handler)
    start = []

    class Start(Hook):
        def before_train(self, runner):
            start.append(runner.iter)

    runner.register_hook(Start())
    runner.train()
    said = [r.getMessage() for r in caplog.records]
    return start[0], ' '.join(m for m in said if m.startswith(('Resuming', 'There')))


def test_the_last_checkpoint_is_resumed(trained, caplog):
    start, said = resumed_from(trained, caplog)
    assert start == 3
    assert said == f'Resuming from {trained}/iter_3.pth, as last_checkpoint says.'


@pytest.mark.parametrize(
    'damage, start, why',
    [
        (empty_note, 3, 'last_checkpoint is missing or empty.'),
        (no_note, 3, 'last_checkpoint is missing or empty.'),
        (name_missing, 3, 'last_checkpoint names {}/iter_9.pth.'),
        (cut, 2, 'last_checkpoint names {}/iter_3.pth.'),
        (lose_blocks, 2, 'last_checkpoint names {}/iter_3.pth.'),
    ],
)
def test_else_the_newest_readable_one(trained, caplog, damage, start, why):
    damage(trained)
    found, said = resumed_from(trained, caplog)
    assert found == start
    assert said == (
        f'Resuming from {trained}/iter_{start}.pth, the newest readable checkpoint: '
        f'{trained}/{why.format(trained)}'
    )


def test_what_is_newest_is_told_by_the_clock(trained, caplog):
    """A longer training was in the same folder before."""
    os.utime(trained / 'iter_3.pth', (0, 0))
    no_note(trained)
    assert resumed_from(trained, caplog)[0] == 2


def test_best_checkpoints_hold_too_little_to_resume(trained, caplog):
    (trained / 'iter_3.pth').rename(trained / 'best_mIoU_iter_3.pth')
    assert resumed_from(trained, caplog)[0] == 2


@pytest.mark.parametrize('cut_one', [False, True])
def test_an_empty_folder_starts_from_scratch(tmp_path, caplog, cut_one):
    if cut_one:
        train(tmp_path, iters=1)
        cut(tmp_path, 1)
        empty_note(tmp_path)
    start, said = resumed_from(tmp_path, caplog)
    assert start == 0
    assert said == (
        f'There is no readable checkpoint in {tmp_path}: starting from scratch.'
    )


def test_nothing_readable_although_one_is_named(trained):
    for i in (1, 2, 3):
        cut(trained, i)
    with pytest.raises(ValueError, match='to start from scratch') as error:
        train(trained, resume=True)
    for i in (1, 2, 3):
        assert f'{trained}/iter_{i}.pth is truncated' in str(error.value)
    assert f'{trained}/last_checkpoint names {trained}/iter_3.pth' in str(error.value)


# --- whether it fits


def test_a_foreign_checkpoint_is_refused(tmp_path):
    path = tmp_path / 'foreign.pth'
    torch.save(dict(model=dict(fc=torch.ones(1))), path)
    with pytest.raises(ValueError, match=r'foreign.pth is of another model.*load_from'):
        train(tmp_path, load_from=str(path))


def test_another_geometry_is_refused(trained):
    with pytest.raises(
        ValueError,
        match=r'linear.weight has shape \(1, 1\), the model has \(1, 2\)',
    ):
        train(trained, width=2, resume=True)


def test_a_part_of_the_weights_is_refused_on_resuming(trained):
    path = trained / 'iter_3.pth'
    checkpoint = torch.load(path, weights_only=False)
    del checkpoint['state_dict']['linear.bias']
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=r"lacks 1 parameters.*\['linear.bias'\]"):
        train(trained, resume=True)
    # Training may start from a part.
    runner = train(trained, load_from=str(path))
    assert runner.iter == 3


def test_weights_alone_cannot_be_resumed(trained):
    path = trained / 'weights.pth'
    weights = torch.load(trained / 'iter_3.pth', weights_only=False)['state_dict']
    torch.save(dict(state_dict=weights, meta=dict()), path)
    message = 'a checkpoint with epoch, iter, message_hub, optimizer; .*resume=False'
    with pytest.raises(ValueError, match=message):
        train(trained, resume=True, load_from=str(path))


def train_with(optimizer, folder, **kwargs):
    torch.manual_seed(0)
    wrapper = dict(optimizer=dict(lr=0.1, **optimizer))
    return train(folder, width=3, optim_wrapper=wrapper, **kwargs)


@pytest.mark.parametrize('kind', ['SGD', 'AdamW', torch.optim.Adafactor])
def test_state_of_any_shape_is_resumed(tmp_path, kind):
    """Adafactor keeps factored moments, and others of vectors than of matrices."""
    ends = []
    for parts in ((4,), (2, 4)):
        folder = tmp_path / str(parts)
        for iters in parts:
            resume = iters != parts[0]
            runner = train_with(dict(type=kind), folder, iters=iters, resume=resume)
        ends.append(runner.model.state_dict())
    assert all(value.equal(ends[1][key]) for key, value in ends[0].items())


def test_the_state_of_other_parameters_is_refused(tmp_path):
    """As of another config, which freezes others or orders them in another way."""
    train_with(dict(type='AdamW'), tmp_path)
    path = tmp_path / 'iter_3.pth'
    checkpoint = torch.load(path, weights_only=False)
    state = checkpoint['optimizer']['state']
    state[0], state[1] = state[1], state[0]
    torch.save(checkpoint, path)
    message = 'allowed: one with the state of these trained parameters'
    with pytest.raises(ValueError, match=message):
        train_with(dict(type='AdamW'), tmp_path, iters=4, resume=True)
    checkpoint['optimizer']['param_groups'][0]['params'] = [0]
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=message):
        train_with(dict(type='AdamW'), tmp_path, iters=4, resume=True)


# --- whether stitch ids mean what they meant

KEY = 'backbone._extra_state'


@pytest.fixture
def averaged(toy_cfg, tmp_path):
    """A config, and a checkpoint of two iterations with a model average."""
    toy_cfg.custom_hooks = [dict(type='EMAHook', priority='NORMAL')]
    Runner.from_cfg(toy_cfg).train()
    return toy_cfg, tmp_path / 'iter_2.pth'


def start(cfg, path, name, handler=None, **changes):
    """Train for one iteration from a checkpoint, in another folder."""
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    cfg.load_from = str(path)
    cfg.train_cfg.max_iters = 3 if cfg.resume else 1
    cfg.work_dir = f'{cfg.work_dir}/{name}'
    cfg.experiment_name = cfg.visualizer.name = cfg.work_dir
    runner = Runner.from_cfg(cfg)
    if handler is not None:
        runner.logger.addHandler(handler)
    runner.train()
    return runner


def test_what_a_checkpoint_goes_into(averaged, tmp_path):
    cfg, path = averaged
    checkpoint = load_weights_only(path)
    record = checkpoint['state_dict'][KEY]
    assert record.equal(checkpoint['ema_state_dict'][f'module.{KEY}'])
    space = TwoWaySpace((4, 8))
    assert f'"fingerprint":"{space.fingerprint}"' in bytes(record.numpy()).decode()

    part = {'model.backbone.stitch_ids': [2, 7]}
    with pytest.raises(ValueError, match='goes on with the stitches it began') as error:
        start(cfg, path, 'a', resume=True, **part)
    assert f'checkpoint {path}: ' in str(error.value)
    assert TwoWaySpace((4, 8), ids=[2, 7]).fingerprint in str(error.value)
    assert start(cfg, path, 'b', **part).model.backbone.space.ids == (0, 1, 2, 7)

    # Weights of another depth lack parameters too; the space is what is said.
    other = {'model.backbone.anchors.0.arch.depth': 3}
    for resume in (True, False):
        with pytest.raises(ValueError, match='another stitching space') as error:
            start(cfg, path, f'c{resume}', resume=resume, **other)
        assert 'stitches of anchors of depths (4, 8)' in str(error.value)
        assert 'config keys: backbone.type, backbone.anchors' in str(error.value)


def test_checkpoints_from_before_there_were_records(averaged, tmp_path, caplog):
    cfg, path = averaged
    checkpoint = torch.load(path, weights_only=False)
    del checkpoint['state_dict'][KEY]
    del checkpoint['ema_state_dict'][f'module.{KEY}']
    old = tmp_path / 'old.pth'
    torch.save(checkpoint, old)
    cfg.log_level = 'INFO'
    runner = start(cfg, old, 'a', caplog.handler, resume=True)
    assert runner.iter == 3
    messages = [r.getMessage() for r in caplog.records]
    lines = [m for m in messages if 'stitching space' in m or '_extra_state' in m]
    assert lines == [
        f'checkpoint {old} does not say which stitching space it is of; older ones do '
        'not: its ids are taken for those of the model.'
    ]
    saved = load_weights_only(f'{tmp_path}/a/iter_3.pth')
    assert {KEY, 'backbone.stitching_initialized'} <= saved['state_dict'].keys()
