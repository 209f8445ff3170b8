import sys
from pathlib import Path

import torch
from tiny import tiny_config

from snnet_mm.training import build_runner
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
    lines = [x for x in printed.splitlines() if not x.startswith('Loads')]
    assert len(lines) < 40  # mmengine alone prints hundreds
    assert lines[0] == 'Model: EncoderDecoder, SNNetv2, PlainViT and PlainViT'
    assert lines[1].endswith('3 iterations')
    assert any(line.startswith('  iteration 3/3, loss ') for line in lines)
    assert any(line.startswith('Fitted ') for line in lines)
    warned = [line for line in lines if 'Warning' in line]
    assert warned[0] == 'Warning: No such thing'
    known = 'do not match exactly', 'random weights'  # of the head, and the anchors
    assert all(any(words in line for words in known) for line in warned[1:])
