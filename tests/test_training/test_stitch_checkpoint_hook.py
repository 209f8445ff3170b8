"""Checkpoints survive an interruption at any moment."""

import os
from pathlib import Path

import pytest
import torch
from line_runner import build_runner, files, step_of, train


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
    message = r'linear\.weight .*iteration 2: .*/iter_1\.pth'
    with pytest.raises(ValueError, match=message):
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
