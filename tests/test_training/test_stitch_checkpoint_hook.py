"""Checkpoints survive an interruption, and the newest readable one is resumed."""

import os
from pathlib import Path

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.runner import Runner

SGD = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9))


class Line(BaseModel):
    """A linear model, by default of two parameters, which is trained instantly."""

    def __init__(self, width=1):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)

    def forward(self, inputs, mode):
        y = self.linear(torch.stack(list(inputs)))
        return dict(loss=y.square().mean()) if mode == 'loss' else list(y)


class Scores(BaseMetric):
    """Returns preset scores, one for each validation."""

    def __init__(self, **scores):
        super().__init__()
        self.scores = {name: list(values) for name, values in scores.items()}

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        return {name: values.pop(0) for name, values in self.scores.items()}


def build_runner(work_dir, iters=3, scores=None, width=1, **kwargs):
    """Build a runner that by default saves after every iteration."""
    hook = dict(type='StitchCheckpointHook', by_epoch=False, interval=1)
    hook |= kwargs.pop('checkpoint', {})
    loader = dict(
        dataset=[dict(inputs=torch.ones(width))] * 2,
        sampler=dict(type='InfiniteSampler'),
        batch_size=1,
    )
    if scores:
        kwargs |= dict(
            val_dataloader=loader | dict(sampler=dict(type='DefaultSampler')),
            val_cfg=dict(),
            val_evaluator=[Scores(**scores)],
        )
    return Runner(
        model=Line(width),
        work_dir=str(work_dir),
        train_dataloader=loader,
        train_cfg=dict(by_epoch=False, max_iters=iters, val_interval=1),
        optim_wrapper=kwargs.pop('optim_wrapper', SGD),
        default_hooks=dict(checkpoint=hook),
        randomness=dict(seed=0),
        log_level='ERROR',
        experiment_name=f'{work_dir}-{len(os.listdir(work_dir))}',
        **kwargs,
    )


def train(work_dir, *args, **kwargs):
    work_dir.mkdir(exist_ok=True)
    runner = build_runner(work_dir, *args, **kwargs)
    runner.train()
    return runner


def files(folder):
    """Return the names of all files, hidden ones included, except the config."""
    paths = folder.iterdir()
    return sorted(p.name for p in paths if p.is_file() and p.suffix != '.py')


def step_of(path):
    return torch.load(path, weights_only=False)['meta']['iter']


@pytest.mark.parametrize(
    'options, expected',
    [
        (dict(max_keep_ckpts=2), ['iter_4', 'iter_5']),
        (dict(interval=2), ['iter_2', 'iter_4', 'iter_5']),
        (dict(interval=2, save_last=False), ['iter_2', 'iter_4']),
        (dict(interval=None), ['iter_3', 'iter_5']),  # with every validation
        (dict(interval=2, max_keep_ckpts=1, filename_tmpl='s{}.pt'), ['s5.pt']),
    ],
)
def test_stitch_checkpoint_hook_keeps_what_is_asked_for(tmp_path, options, expected):
    runner = build_runner(tmp_path, iters=5, checkpoint=options)
    runner._train_loop['val_interval'] = 3
    runner.train()
    expected = [n if '.' in n else f'{n}.pth' for n in expected]
    assert [n for n in files(tmp_path) if n != 'last_checkpoint'] == expected
    last = Path((tmp_path / 'last_checkpoint').read_text())
    assert last == tmp_path / expected[-1]
    assert step_of(last) == (4 if options.get('save_last') is False else 5)


def test_stitch_checkpoint_hook_out_dir_is_resumed_from(tmp_path):
    work_dir = tmp_path / 'run'
    options = dict(out_dir=str(tmp_path / 'big_disk'), max_keep_ckpts=1)
    train(work_dir, iters=2, checkpoint=options)
    folder = tmp_path / 'big_disk' / 'run'
    assert files(folder) == ['iter_2.pth']
    assert files(work_dir) == ['last_checkpoint']
    (work_dir / 'last_checkpoint').unlink()
    runner = train(work_dir, iters=3, checkpoint=options, resume=True)
    assert runner._load_from == str(folder / 'iter_2.pth')
    assert files(folder) == ['iter_3.pth']


def test_stitch_checkpoint_hook_keeps_the_best(tmp_path):
    options = dict(save_best=['mIoU', 'loss'], max_keep_ckpts=1)
    scores = dict(mIoU=[3, 5, 4], loss=[3, 2, 1])
    train(tmp_path, checkpoint=options, scores=scores)
    bests = ['best_loss_iter_3.pth', 'best_mIoU_iter_2.pth']
    assert files(tmp_path) == [*bests, 'iter_3.pth', 'last_checkpoint']
    assert step_of(tmp_path / bests[1]) == 2
    # Only a checkpoint that knows the best one lets a resumed training replace it.
    scores = dict(mIoU=[6], loss=[2])
    train(tmp_path, 4, checkpoint=options, scores=scores, resume=True)
    assert files(tmp_path)[:2] == [bests[0], 'best_mIoU_iter_4.pth']


def test_stitch_checkpoint_hook_weights_not_finite_replace_nothing(tmp_path):
    options = dict(max_keep_ckpts=1, save_best='mIoU')
    diverging = dict(optimizer=dict(type='SGD', lr=1e30))
    runner = build_runner(
        tmp_path, checkpoint=options, scores=dict(mIoU=[1]), optim_wrapper=diverging
    )
    with pytest.raises(ValueError, match=r'iteration 2: .*/iter_1\.pth'):
        runner.train()
    names = ['best_mIoU_iter_1.pth', 'iter_1.pth']
    assert files(tmp_path) == [*names, 'last_checkpoint']
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / names[1])
    for name in names:
        weights = torch.load(tmp_path / name, weights_only=False)['state_dict']
        assert weights['linear.weight'].isfinite().all()


def test_stitch_checkpoint_hook_syncs_before_it_renames(tmp_path, monkeypatch):
    events = []
    replace, fsync = os.replace, os.fsync

    def note_sync(descriptor):
        events.append(('sync', os.readlink(f'/proc/self/fd/{descriptor}')))
        fsync(descriptor)

    def note_rename(source, target):
        events.append(('rename', str(source), Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, 'fsync', note_sync)
    monkeypatch.setattr(os, 'replace', note_rename)
    train(tmp_path, iters=1)
    assert [e[2] for e in events if e[0] == 'rename'] == ['iter_1.pth']
    for before, event, after in zip(events, events[1:], events[2:], strict=False):
        if event[0] == 'rename':
            assert before == ('sync', event[1])
            assert after == ('sync', str(tmp_path))


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
    with pytest.raises(ValueError, match=r'last_checkpoint .*/iter_3\.pth'):
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
