"""A training goes on from the newest checkpoint that can be read and fits."""

import os

import pytest
import torch
from line_runner import build_runner, train


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


def resumed_from(folder, iters=3):
    """Return the checkpoint that a training resumes from, or False."""
    runner = build_runner(folder, iters=iters, resume=True)
    runner.train()
    return runner._resume and runner._load_from


@pytest.mark.parametrize(
    'damage, note, start',
    [
        (None, 'iter_3.pth', 3),
        (None, '', 3),
        (None, 'iter_9.pth', 3),
        (None, 'iter_2.pth', 2),
        (cut, 'iter_3.pth', 2),
        (lose_blocks, 'iter_3.pth', 2),
        (write_longer_one_before, None, 2),
        (keep_the_best, 'iter_3.pth', 2),
    ],
)
def test_resume_from_last_or_newest_readable_checkpoint(trained, damage, note, start):
    path = trained / 'last_checkpoint'
    if note is None:
        path.unlink()
    else:
        path.write_text(note and f'{trained}/{note}')
    if damage:
        damage(trained)
    assert resumed_from(trained) == f'{trained}/iter_{start}.pth'


def test_resume_nothing_readable_starts_from_scratch(trained):
    """Unless one is named."""
    for i in (1, 2, 3):
        cut(trained, i)
    words = r'last_checkpoint .*/iter_3\.pth'
    with pytest.raises(ValueError, match=words):
        resumed_from(trained)
    (trained / 'last_checkpoint').write_text('')
    assert resumed_from(trained) is False


FOREIGN = dict(model=dict(fc=torch.ones(1)))
HALF = dict(state_dict={'linear.weight': torch.ones(1, 1)})
WEIGHTS = dict(state_dict=dict(HALF['state_dict'], **{'linear.bias': torch.ones(1)}))
NO_OPTIMIZER = 'optimizer; .*resume='


@pytest.mark.parametrize(
    'checkpoint, changes, message',
    [
        (FOREIGN, {}, 'another model.*load_from'),
        (HALF, dict(width=2, resume=True), r'weight has shape \(1, 1\)'),
        (HALF, dict(resume=True), r'lacks 1 .*linear\.bias'),
        (WEIGHTS, dict(resume=True), NO_OPTIMIZER),
    ],
)
def test_resume_checkpoint_that_does_not_fit_is_refused(
    tmp_path, checkpoint, changes, message
):
    path = tmp_path / 'some.pth'
    torch.save(checkpoint, path)
    with pytest.raises(ValueError, match=message):
        train(tmp_path, load_from=str(path), **changes)


def test_load_from_may_be_a_part(tmp_path):
    torch.save(HALF, tmp_path / 'some.pth')
    assert train(tmp_path, load_from=str(tmp_path / 'some.pth')).iter == 3
