"""A training goes on from the newest checkpoint that can be read and fits."""

import os

import pytest
import torch
from line_runner import build_runner, train
from mmengine.hooks import Hook

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
    message = r'weights.pth cannot be resumed: it has no message_hub, optimizer, meta'
    with pytest.raises(ValueError, match=message):
        train(trained, resume=True, load_from=str(path))
