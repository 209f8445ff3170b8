"""tools/research/gpu_session.sh and gpu_pair.sh."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path

import pytest
from mmengine.config import DictAction

from snnet_mm.utils import load_config

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / 'tools' / 'research'))
import pair  # noqa: E402

# Stands in for the interpreter: notes what it is to run, and writes the results.
PYTHON = """#!/usr/bin/env bash
echo "$*" >>commands
tool=$1
while [ $# -gt 0 ]; do
  case $1 in
  --work-dir | --out) out=$2 ;;
  --iters) iters=$2 ;;
  esac
  shift
done
case $tool in
*train.py) mkdir -p "$out" && touch "$out/iter_$iters.pth" ;;
*compare_fronts.py) touch "$out.json" ;;
*) mkdir -p "$out" && touch "$out/stitches.json" "$out/results.json" ;;
esac
"""
# Trainings, and the iterations of each.
TRAININGS = dict(slow=1200, fast=1200, apart=2200, fast_more=1200)
TRAININGS |= {
    f'{kind}_{n}': n for n in (300, 1200, 4000) for kind in ('pair', 'network')
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / '.venv/bin').mkdir(parents=True)
    (tmp_path / '.venv/bin/python').write_text(PYTHON)
    (tmp_path / '.venv/bin/python').chmod(0o755)
    shutil.copytree(ROOT / 'tools/research', tmp_path / 'tools/research')
    return tmp_path


@pytest.fixture
def run(folder):
    """Runs a script, and returns the arguments of the tools that it calls."""

    def run(script, *args, **env):
        commands = folder / 'commands'
        commands.write_text('')
        script = [folder / f'tools/research/{script}', *args]
        how = dict(cwd=folder, env=os.environ | env, capture_output=True, text=True)
        done = subprocess.run(script, check=False, **how)
        lines = commands.read_text().splitlines()
        return [shlex.split(line) for line in lines], done

    return run


def settings_of(command):
    """Return the config of a training with its options."""
    parser = ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    options = parser.parse_known_args(command)[0].cfg_options
    return load_config(ROOT / command[1], options)


def test_gpu_pair_trains_tests_and_compares(run, folder):
    _, done = run('gpu_pair.sh')
    assert done.returncode == 1
    assert 'data/camvid is not CamVid: set DATA' in done.stderr
    (folder / 'camvid/images/train').mkdir(parents=True)
    env = dict(DATA='camvid', WEIGHTS='dinov2.pth', JOBS='1')
    commands, done = run('gpu_pair.sh', **env, MINUTES='0')
    assert (commands, done.returncode) == ([], 1)
    assert 'The anchors are not trained; call' in done.stderr
    commands, _ = run('gpu_pair.sh', **env)
    trainings = {Path(c[3]).name: c for c in commands if c[0].endswith('train.py')}
    iterations = {k: int(c[c.index('--iters') + 1]) for k, c in trainings.items()}
    assert iterations == TRAININGS
    compared = [c[1:3] for c in commands if c[0].endswith('compare_fronts.py')]
    out = 'work_dirs/gpu_pair'
    assert compared == [
        *(
            [
                f'network_{n}={out}/network_{n}-elastic/stitches.json',
                f'pair_{n}={out}/pair_{n}-test/stitches.json',
            ]
            for n in (300, 1200, 4000)
        ),
        [
            f'alone={out}/fast_more-test/results.json+'
            f'{out}/slow_more-test/results.json',
            f'apart={out}/apart-test/stitches.json',
        ],
    ]
    assert run('gpu_pair.sh', **env)[0] == []  # all is there

    found = {name: settings_of(command) for name, command in trainings.items()}
    slow, fast = (f'{out}/{name}/iter_1200.pth' for name in ('slow', 'fast'))
    anchors = {
        name: [anchor.init_cfg.checkpoint for anchor in cfg.model.backbone.anchors]
        for name, cfg in found.items()
        if 'anchors' in cfg.model.backbone
    }
    pairs = {f'pair_{n}': [slow, slow] for n in (300, 1200, 4000)}
    assert anchors == dict(pairs, apart=[fast, slow])
    for name in 'slow', 'fast':
        assert found[name].model.backbone.init_cfg.checkpoint == 'dinov2.pth'
    assert found['fast'].model.backbone.arch.depth == 4
    assert found['fast_more'].model.backbone.arch.depth == 4
    assert found['fast_more'].model.init_cfg.checkpoint == fast
    assert found['network_300'].model.init_cfg.checkpoint == slow
    for cfg in found.values():
        assert cfg.train_dataloader.dataset.data_root == 'camvid'
        assert cfg.train_dataloader.dataset.pipeline[3].crop_size == (350, 476)
    of = [found[name] for name in ('fast_more', 'network_1200', 'apart')]
    assert pair.iterations_alone(*of, TRAININGS['apart']) == TRAININGS['fast_more']


def test_gpu_session_limits_each_part(run):
    commands, done = run('gpu_session.sh')
    parts = ['tests', 'steps', 'latency', 'elastic', 'loaders', 'report']
    assert [command[1] for command in commands] == parts
    assert [c[1] for c in run('gpu_session.sh', 'steps')[0]] == ['steps', 'report']
    assert run('gpu_session.sh', 'nothing')[1].returncode == 2
    text = (ROOT / 'tools/research/gpu_session.sh').read_text()
    limits = text.partition('seconds=(')[2].partition(')\n')[0]
    numbers = [int(part.rpartition('=')[2]) for part in limits.split()]
    assert len(numbers) == 5
    assert sum(numbers) <= 9 * 60 - 20  # for the report


@pytest.mark.slow
def test_gpu_session_keeps_what_it_measured(tmp_path):
    """A part on this machine, again after one of its cases was removed."""
    tool = ROOT / 'tools/research/gpu_session.py'
    env = os.environ | dict(TOY='1', OUT=str(tmp_path), PYTHONPATH=str(ROOT))

    def call(part):
        subprocess.run([sys.executable, tool, part], env=env, check=True, cwd=ROOT)
        return json.loads((tmp_path / 'loaders.json').read_text())['cases']

    first = call('loaders')
    assert first.keys() == {'ImageNet, 0 workers', 'ADE20K, 0 workers'}
    assert all(case['images_per_s'] > 0 for case in first.values())
    content = dict(cases=first | {'ADE20K, 0 workers': None})
    (tmp_path / 'loaders.json').write_text(json.dumps(content))
    call('report')
    report = (tmp_path / 'report.md').read_text()
    assert '| loaders | ADE20K, 0 workers | not run |' in report
    assert '| steps | all | not run |' in report
    second = call('loaders')
    assert second['ImageNet, 0 workers'] == first['ImageNet, 0 workers']
    assert second['ADE20K, 0 workers']['images_per_s'] > 0
    before = (tmp_path / 'loaders.json').read_bytes()
    call('loaders')
    assert (tmp_path / 'loaders.json').read_bytes() == before
