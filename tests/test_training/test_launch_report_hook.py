import re

import pytest
import torch
from tiny import tiny_config
from torch import nn

from snnet_mm.training import run
from snnet_mm.training.launch_report_hook import checkpoint_bytes


def lines_of(tmp_path, capsys, **settings):
    cfg = tiny_config()
    cfg.log_level = 'INFO'
    cfg.merge_from_dict(settings)
    runner = run.train(cfg, tmp_path, plain_hooks=True)
    return runner, capsys.readouterr().out


def test_launch_report_other_batch_names_three_ways_out(tmp_path, capsys):
    """And the disk space of as many checkpoints as are kept."""
    size, hook = tiny_config().train_dataloader.batch_size, 'default_hooks.checkpoint.'
    settings = dict(auto_scale_lr=dict(base_batch_size=8 * size))
    settings |= {f'{hook}max_keep_ckpts': 2, f'{hook}save_best': None}
    settings['train_cfg.max_iters'] = 3
    _, out = lines_of(tmp_path, capsys, **settings)
    assert f'Device: CPU; 1 process x {size} images = batch of {size}' in out
    words = f'made for batches of {8 * size} images, and these have {size}: '
    words += 'start 8 processes, or pass --auto-scale-lr, or set '
    assert words + 'optim_wrapper.accumulative_counts=8' in ' '.join(out.split())
    words = rf'Checkpoints: 2 x 0\.0001\d GB in {tmp_path}, which has \d+ GB free'
    assert re.search(words, out)


def test_launch_report_accumulation_counts(tmp_path, capsys):
    size = tiny_config().train_dataloader.batch_size
    settings = {
        'auto_scale_lr': dict(base_batch_size=2 * size),
        'optim_wrapper.accumulative_counts': 2,
    }
    _, out = lines_of(tmp_path, capsys, **settings)
    assert f'{size} images x 2 iterations = batch of {2 * size}' in out
    assert 'The config is made for' not in out


def test_launch_report_says_that_nothing_is_left_to_train(tmp_path, capsys):
    _, out = lines_of(tmp_path, capsys)
    assert 'Nothing is left' not in out
    again = dict(resume=True, experiment_name='again')
    _, out = lines_of(tmp_path, capsys, **again)
    words = 'Nothing is left to train: the resumed checkpoint has 1 iterations of 1'
    assert words in ' '.join(out.split())


@pytest.mark.parametrize(('kind', 'moments'), [('AdamW', 2), ('SGD', 1)])
def test_checkpoint_bytes_are_weights_and_moments(kind, moments):
    model = nn.Sequential(nn.Linear(10, 5), nn.BatchNorm1d(5))
    model[1].requires_grad_(False)
    momentum = dict(momentum=0.9) if kind == 'SGD' else {}
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1, **momentum)
    norm = 4 * 5 * 4 + 8  # with the number of batches
    assert checkpoint_bytes(model, optimizer) == 55 * 4 * (1 + moments) + norm


def test_train_scale_lr_scales_with_the_batch(tmp_path, capsys):
    rates = {}
    for scaled in (False, True):
        cfg = tiny_config()
        cfg.log_level = 'INFO'
        base = 4 * cfg.train_dataloader.batch_size
        cfg.auto_scale_lr = dict(base_batch_size=base)
        runner = run.train(cfg, tmp_path / str(scaled), scale_lr=scaled)
        rates[scaled] = [
            group['lr'] for group in runner.optim_wrapper.optimizer.param_groups
        ]
        warned = 'The config is made for' in capsys.readouterr().out
        assert warned is not scaled
    assert rates[True] == pytest.approx([rate / 4 for rate in rates[False]])


def test_train_scale_lr_requires_a_base_batch_size(tmp_path):
    cfg = tiny_config()
    cfg.auto_scale_lr = None
    with pytest.raises(ValueError, match='auto_scale_lr.base_batch_size'):
        run.train(cfg, tmp_path, scale_lr=True)


def test_launch_report_batch_of_a_batch_sampler(tmp_path, capsys):
    """As in most configs of mmdet, whose loaders then know no size."""
    sampler = dict(type='mmdet.AspectRatioBatchSampler')
    settings = {
        'train_dataloader.batch_sampler': sampler,
        'auto_scale_lr': dict(base_batch_size=8),
    }
    _, out = lines_of(tmp_path, capsys, **settings)
    assert '1 process x 2 images = batch of 2' in out
    assert 'start 4 processes' in ' '.join(out.split())
