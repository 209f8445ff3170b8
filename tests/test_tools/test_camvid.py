"""tools/dataset_converters/camvid.py and tools/camvid.sh."""

import os
import re
import shlex
import shutil
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import cv2
import numpy as np
import pytest
from mmengine.config import DictAction

from snnet_mm.utils import load_config

TOOL = 'dataset_converters/camvid.py'
ROOT = Path(__file__).parents[2]
# Stands in for the interpreter: notes what it is to run, and writes checkpoints.
PYTHON = """#!/usr/bin/env bash
echo "$*" >>commands
tool=$1
case $tool in *camvid.py) mkdir -p "$3" ;; esac
while [ $# -gt 0 ]; do
  case $1 in --work-dir | --out) out=$2 ;; esac
  shift
done
case $tool in
*train.py) mkdir -p "$out" && touch "$out/iter_20.pth" ;;
*make_elastic.py) mkdir -p "$out" && touch "$out/stitches.json" ;;
*export_stitch.py) mkdir -p "$out" && touch "$out/stitch_3.pth" ;;
*stitch_models.py) touch "$out" ;;
*test.py) mkdir -p "$out/1" && touch "$out/1/stitches.json" ;;
esac
"""


def test_camvid_converter_writes_layout_of_configs(run_here, tmp_path):
    source, target = tmp_path / 'CamVid', tmp_path / 'target'
    rows = np.arange(12, dtype=np.uint8).repeat(3)  # as many labels as there are
    for part in ('train', 'val', 'test'):
        for kind, array in (
            (part, np.full((36, 48, 3), (200, 90, 10), np.uint8)),
            (f'{part}annot', np.tile(rows[:, None], 48)),
        ):
            (source / kind).mkdir(parents=True)
            cv2.imwrite(str(source / kind / f'{part}_1.png'), array)
    assert run_here(TOOL, source, target).count('1 images and labels') == 3
    written = sorted(str(p.relative_to(target)) for p in target.rglob('*.*'))
    assert written == [
        *(f'annotations/{part}/{part}_1.png' for part in ('test', 'train', 'val')),
        *(f'images/{part}/{part}_1.jpg' for part in ('test', 'train', 'val')),
    ]
    label = cv2.imread(str(target / written[0]), -1)
    assert label[::3, 7].tolist() == [*range(11), 255]  # unlabelled pixels are void
    image = cv2.imread(str(target / written[3])).astype(int)
    assert np.abs(image - (200, 90, 10)).max() <= 3
    with pytest.raises(ValueError, match=r'a folder with train/\*.png'):
        run_here(TOOL, target, target)


def test_camvid_sh_commands(tmp_path):
    git = 'git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-C', tmp_path / 'source'
    for folder in ('source', 'tools', '.venv/bin'):
        (tmp_path / folder).mkdir(parents=True)
    for command in (['init', '-q'], ['commit', '-q', '-m', 'a', '--allow-empty']):
        subprocess.run([*git, *command], check=True)
    shutil.copy(ROOT / 'tools/camvid.sh', tmp_path / 'tools')
    (tmp_path / '.venv/bin/python').write_text(PYTHON)
    (tmp_path / '.venv/bin/python').chmod(0o755)
    env = dict(os.environ, ITERS='20', MORE='20', WEIGHTS='dinov2.pth')
    env['SOURCE'] = f'file://{tmp_path}/source'
    commands = tmp_path / 'commands'

    def run(*args):
        commands.write_text('')
        script = [tmp_path / 'tools/camvid.sh', *args]
        subprocess.run(script, cwd=tmp_path, env=env, check=True, capture_output=True)
        lines = commands.read_text().splitlines()
        return [line.split()[0].rpartition('/')[2] for line in lines], lines

    tools, (_, train, _) = run()
    assert tools == ['camvid.py', 'train.py', 'make_elastic.py']
    assert '--iters 20' in train
    _, config, *_, options = train.split(maxsplit=2)
    parser = ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    options = parser.parse_known_args(shlex.split(options))[0].cfg_options
    network = load_config(ROOT / config, options)
    assert network.model.backbone.init_cfg.checkpoint == 'dinov2.pth'
    # Once more, nothing is fetched, trained or measured again.
    assert run() == ([], [])
    steps = 'export_stitch.py', 'stitch_models.py', 'train.py', 'train.py'
    expected = [*steps, 'make_elastic.py', *['test.py'] * 3, 'compare_fronts.py']
    assert run('pair')[0] == expected
    assert run('pair')[0] == ['compare_fronts.py']
    # Other settings are for another folder.
    for name, value, args in (('SEED', '1', ()), ('MORE', '9', ('pair',))):
        before, env[name] = env.get(name, '0'), value
        with pytest.raises(subprocess.CalledProcessError) as error:
            run(*args)
        message = (
            rf'with.* {name}={before}.*, not with.* {name}={value}.*: set WORK_DIR'
        )
        assert re.search(message, error.value.stderr.decode())
        assert commands.read_text() == ''
        env[name] = before
    env['MORE'] = '9'
    assert run() == ([], [])  # of the pair alone
    env['WORK_DIR'] = 'other'
    assert run()[0] == ['train.py', 'make_elastic.py']
