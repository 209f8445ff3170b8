import sys
from pathlib import Path

import pytest
import torch
from line_runner import build_runner as build_line_runner
from tiny import tiny_config

from snnet_mm.inference.init_model import space_of
from snnet_mm.stitching import TwoWaySpace
from snnet_mm.training import build_runner
from snnet_mm.training.build_runner import ScheduleCheckHook
from snnet_mm.utils import run_command


def test_the_terminal_is_short_and_the_file_is_not(tmp_path, capsys, monkeypatch):
    cfg = tiny_config()
    cfg.work_dir = str(tmp_path)
    cfg.experiment_name = cfg.visualizer.name = 'short log'
    cfg.train_cfg.max_iters, cfg.log_level = 3, 'INFO'
    head, path = cfg.model.decode_head, str(tmp_path / 'head.pth')
    torch.save({'decode_head.conv_seg.bias': torch.zeros(head.num_classes)}, path)
    head.init_cfg = dict(type='Pretrained', checkpoint=path, prefix='decode_head.')
    runners = []

    def main():
        runners.append(runner := build_runner(cfg, 'train'))
        runner.logger.warning('The prefix is not set in metric class A.')
        runner.logger.warning('No such thing')
        runner.train()

    monkeypatch.setattr(sys, 'argv', ['tool'])
    run_command(main)
    printed = capsys.readouterr().out
    written = next(Path(runners[0].log_dir).glob('*.log')).read_text()
    assert 'Hooks will be executed' in written
    assert 'Hooks will be executed' not in printed
    assert 'load decode_head. in model from' in written
    assert 'Loads checkpoint' not in printed  # which mmengine prints past its log
    lines = printed.splitlines()
    assert len(lines) < 40  # mmengine alone prints hundreds
    assert lines[0] == 'Model: EncoderDecoder, SNNetv2, PlainViT and PlainViT'
    assert lines[1].endswith('3 iterations')
    assert any(line.startswith('  iteration 3/3, loss ') for line in lines)
    assert any(line.startswith('Fitted ') for line in lines)
    warned = [line for line in lines if 'Warning' in line]
    assert warned[0] == 'Warning: No such thing'
    assert all('do not match exactly' in line for line in warned[1:])  # the head


def test_a_space_is_known_before_the_model():
    cfg = tiny_config()
    space = space_of(cfg)
    depths = [anchor.arch.depth for anchor in cfg.model.backbone.anchors]
    assert space.ids == TwoWaySpace(depths).ids
    cfg.model.backbone = cfg.model.backbone.anchors[0]
    assert space_of(cfg) is None


@pytest.mark.parametrize(
    'schedule, words',
    [
        ([dict(type='LinearLR', end=2), dict(type='PolyLR', begin=2, end=6)], None),
        ([dict(type='LinearLR', end=2)], None),
        ([dict(type='ExponentialLR', gamma=0.9)], None),
        ([dict(type='CosineAnnealingLR', T_max=6)], None),
        ([dict(type='LinearLR', end=8)], '8 iterations, the training after 6'),
        ([dict(type='LinearLR', start_factor=1, end_factor=0, end=2)], '2 iterations'),
        ([dict(type='CosineAnnealingLR', T_max=4)], '4 iterations'),
        ([dict(type='MultiStepLR', milestones=[4, 9])], '9 iterations'),
        (dict(type='PolyLR', end=600, by_epoch=True), '600 epochs, the training aft'),
    ],
)
def test_schedules_that_end_elsewhere_than_the_training(
    schedule, words, tmp_path, caplog
):
    several = schedule if isinstance(schedule, list) else [schedule]
    several = [dict(by_epoch=False) | part for part in several]
    runner = build_line_runner(tmp_path, 6, param_scheduler=several)
    runner.register_hook(ScheduleCheckHook())
    runner.logger.setLevel('WARNING')
    runner.logger.addHandler(caplog.handler)
    runner.train()
    said = [text for text in caplog.messages if text.startswith('The schedule')]
    assert len(said) == (words is not None)
    assert not words or f'ends after {words}' in said[0]


def test_a_resumed_schedule_is_the_old_one(tmp_path, caplog):
    for iters, resume in ((4, False), (6, True)):
        schedule = [dict(type='PolyLR', by_epoch=False)]
        runner = build_line_runner(tmp_path, iters, param_scheduler=schedule)
        runner._resume = resume
        runner.register_hook(ScheduleCheckHook())
        runner.logger.setLevel('WARNING')
        runner.logger.addHandler(caplog.handler)
        runner.train()
    assert 'after 4 iterations, the training after 6.' in caplog.text
