"""Checkpoints survive an interruption at any moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.fileio import LocalBackend
from mmengine.hooks import Hook
from mmengine.model import BaseModel
from mmengine.runner import Runner

ROOT = Path(__file__).parents[2]


class Line(BaseModel):
    """A model of two numbers."""

    def __init__(self, width=1):
        super().__init__()
        self.linear = torch.nn.Linear(width, 1)

    def forward(self, inputs, mode):
        y = self.linear(torch.stack(list(inputs)))
        return dict(loss=y.square().mean()) if mode == 'loss' else list(y)


class Scores(BaseMetric):
    """Gives the scores it was told, one for each validation."""

    def __init__(self, **scores):
        super().__init__()
        self.scores = {name: list(values) for name, values in scores.items()}

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        return {name: values.pop(0) for name, values in self.scores.items()}


def build_runner(work_dir, iters=3, scores=None, width=1, **kwargs):
    """A runner that saves after every iteration, unless told otherwise."""
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
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9)),
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
    """Names of all files but the config, hidden ones too."""
    paths = folder.iterdir()
    return sorted(p.name for p in paths if p.is_file() and p.suffix != '.py')


def step_of(path):
    return torch.load(path, weights_only=False)['meta']['iter']


# --- which checkpoints there are


@pytest.mark.parametrize(
    'options, expected',
    [
        (dict(), ['iter_1', 'iter_2', 'iter_3', 'iter_4', 'iter_5']),
        (dict(max_keep_ckpts=2), ['iter_4', 'iter_5']),
        (dict(interval=2), ['iter_2', 'iter_4', 'iter_5']),
        (dict(interval=2, save_last=False), ['iter_2', 'iter_4']),
        (dict(interval=2, max_keep_ckpts=1, filename_tmpl='s{}.pt'), ['s5.pt']),
    ],
)
def test_checkpoints_are_those_asked_for(tmp_path, options, expected):
    train(tmp_path, iters=5, checkpoint=options)
    expected = [n if '.' in n else f'{n}.pth' for n in expected]
    assert [n for n in files(tmp_path) if n != 'last_checkpoint'] == expected
    last = Path((tmp_path / 'last_checkpoint').read_text())
    assert last == tmp_path / expected[-1]
    assert step_of(last) == (4 if options.get('save_last') is False else 5)


def test_epochs(tmp_path):
    runner = build_runner(tmp_path, checkpoint=dict(by_epoch=True, max_keep_ckpts=2))
    runner._train_loop = dict(by_epoch=True, max_epochs=3)
    runner._train_dataloader['sampler'] = dict(type='DefaultSampler')
    runner.train()
    assert files(tmp_path) == ['epoch_2.pth', 'epoch_3.pth', 'last_checkpoint']
    assert step_of(tmp_path / 'epoch_3.pth') == 6


def test_another_folder_is_kept_and_resumed_from(tmp_path):
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


def test_keeping_few_goes_on_after_a_resume(tmp_path):
    train(tmp_path, iters=4, checkpoint=dict(max_keep_ckpts=2))
    train(tmp_path, iters=5, checkpoint=dict(max_keep_ckpts=2), resume=True)
    assert files(tmp_path) == ['iter_4.pth', 'iter_5.pth', 'last_checkpoint']


def test_the_best_is_kept(tmp_path):
    scores = dict(mIoU=[3, 5, 4])
    runner = train(tmp_path, checkpoint=dict(save_best='mIoU'), scores=scores)
    assert files(tmp_path)[0] == 'best_mIoU_iter_2.pth'
    assert files(tmp_path)[1].startswith('iter')
    assert step_of(tmp_path / 'best_mIoU_iter_2.pth') == 2
    assert runner.message_hub.get_info('best_score') == 5
    # Only a checkpoint that knows the best one lets a resumed training replace it.
    scores = dict(mIoU=[6])
    train(tmp_path, 4, checkpoint=dict(save_best='mIoU'), scores=scores, resume=True)
    assert [n for n in files(tmp_path) if 'best' in n] == ['best_mIoU_iter_4.pth']


def test_several_bests_are_kept(tmp_path):
    scores = dict(mIoU=[3, 5, 4], loss=[3, 2, 1])
    options = dict(save_best=['mIoU', 'loss'], max_keep_ckpts=1)
    train(tmp_path, checkpoint=options, scores=scores)
    assert files(tmp_path) == [
        'best_loss_iter_3.pth',
        'best_mIoU_iter_2.pth',
        'iter_3.pth',
        'last_checkpoint',
    ]


# --- what an interruption leaves


def test_old_ones_go_last(tmp_path, monkeypatch):
    """When a file is removed, its successors are whole and named."""
    removed = []

    def remove(backend, path):
        newest = Path((tmp_path / 'last_checkpoint').read_text())
        bests = [step_of(p) for p in tmp_path.glob('best_*')]
        removed.append((Path(path).name, step_of(newest), sorted(bests)))
        os.remove(path)

    monkeypatch.setattr(LocalBackend, 'remove', remove)
    options = dict(max_keep_ckpts=1, save_best='mIoU')
    train(tmp_path, checkpoint=options, scores=dict(mIoU=[1, 2, 3]))
    assert removed == [
        ('iter_1.pth', 2, [1]),
        ('best_mIoU_iter_1.pth', 2, [1, 2]),
        ('iter_2.pth', 3, [2]),
        ('best_mIoU_iter_2.pth', 3, [2, 3]),
    ]


def test_a_best_written_over_itself_stays(tmp_path):
    runner = build_runner(
        tmp_path, 1, dict(mIoU=[1, 2]), checkpoint=dict(save_best='mIoU')
    )
    runner.train()
    runner.val_loop.run()
    assert 'best_mIoU_iter_1.pth' in files(tmp_path)


def fail_in_serialising(monkeypatch):
    save = torch.save

    def fail(checkpoint, file):
        if checkpoint['meta']['iter'] == 3:
            file.write(b'half')
            raise RuntimeError('interrupted')
        save(checkpoint, file)

    monkeypatch.setattr(torch, 'save', fail)


def fail_in_writing(monkeypatch):
    def fail(backend, obj, path):
        full = 'iter_3' in str(path)
        Path(path).write_bytes(obj[: len(obj) // 2] if full else obj)
        if full:
            raise OSError('interrupted')

    monkeypatch.setattr(LocalBackend, 'put', fail)


def fail_in_renaming(monkeypatch):
    replace = os.replace

    def fail(source, target):
        if 'iter_3' in str(target):
            raise OSError('interrupted')
        replace(source, target)

    monkeypatch.setattr(os, 'replace', fail)


@pytest.mark.parametrize(
    'fail', [fail_in_serialising, fail_in_writing, fail_in_renaming]
)
def test_a_failed_write_leaves_the_checkpoint_before(tmp_path, monkeypatch, fail):
    fail(monkeypatch)
    with pytest.raises((RuntimeError, OSError), match='interrupted'):
        train(tmp_path, checkpoint=dict(max_keep_ckpts=1))
    assert files(tmp_path) == ['iter_2.pth', 'last_checkpoint']
    assert step_of((tmp_path / 'last_checkpoint').read_text()) == 2


def test_a_failed_note_leaves_the_one_before(tmp_path, monkeypatch):
    write_text = Path.write_text

    def fail(path, text):
        if 'iter_3' in text:
            write_text(path, text[:5])
            raise OSError('interrupted')
        write_text(path, text)

    monkeypatch.setattr(Path, 'write_text', fail)
    with pytest.raises(OSError, match='interrupted'):
        train(tmp_path, checkpoint=dict(max_keep_ckpts=1))
    assert files(tmp_path) == ['iter_2.pth', 'iter_3.pth', 'last_checkpoint']
    assert step_of((tmp_path / 'last_checkpoint').read_text()) == 2
    assert step_of(tmp_path / 'iter_3.pth') == 3


def test_all_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
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
    assert [e[2] for e in events if e[0] == 'rename'] == [
        'iter_1.pth',
        'last_checkpoint',
    ]
    for before, event, after in zip(events, events[1:], events[2:], strict=False):
        if event[0] == 'rename':
            assert before == ('sync', event[1])
            assert after == ('sync', str(tmp_path))


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from mmengine.fileio import LocalBackend
import snnet_mm
from test_checkpoint_hook import train

def put(backend, obj, path):
    if 'iter_2' not in str(path):
        return Path(path).write_bytes(obj)
    Path(path).write_bytes(obj[:len(obj) // 2])
    print('half written', flush=True)
    time.sleep(60)

LocalBackend.put = put
train(Path({work_dir!r}), checkpoint=dict(type={hook!r}, max_keep_ckpts=1))
"""


@pytest.mark.parametrize('hook', ['StitchCheckpointHook', 'CheckpointHook'])
def test_killing_a_write_leaves_the_checkpoint_before(tmp_path, hook):
    """mmengine's own hook shows that the kill hits the writing."""
    script = KILLED.format(
        tests=str(Path(__file__).parent), work_dir=str(tmp_path), hook=hook
    )
    process = subprocess.Popen(
        [sys.executable, '-c', script],
        env=dict(os.environ, PYTHONPATH=str(ROOT), OMP_NUM_THREADS='1'),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert any(line == 'half written\n' for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    last = tmp_path / 'last_checkpoint'
    if hook == 'CheckpointHook':
        with pytest.raises(RuntimeError, match='central directory'):
            step_of(tmp_path / 'iter_2.pth')
        assert not (tmp_path / 'iter_1.pth').exists()
        return
    assert [n for n in files(tmp_path) if n[0] != '.'] == [
        'iter_1.pth',
        'last_checkpoint',
    ]
    assert step_of(last.read_text()) == 1
    train(tmp_path, iters=3, resume=True)
    assert step_of(last.read_text()) == 3


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
