"""tools/dataset_converters/camvid.py and tools/camvid.sh."""

import os
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


@pytest.fixture
def tutorial(tmp_path):
    """A small copy of the repository: its folders, names and formats."""
    folder = tmp_path / 'tutorial' / 'CamVid'
    names = dict(train='0001TP_006690', val='0016E5_07959', test='Seq05VD_f00000')
    rows = np.arange(12, dtype=np.uint8).repeat(30)  # as many labels as there are
    for part, name in names.items():
        for kind, array in (
            (part, np.full((360, 480, 3), (200, 90, 10), np.uint8)),
            (f'{part}annot', np.tile(rows[:, None], 480)),
        ):
            (folder / kind).mkdir(parents=True)
            cv2.imwrite(str(folder / kind / f'{name}.png'), array)
    return folder


def test_the_download_gets_the_layout_of_the_configs(run_here, tutorial, tmp_path):
    target = tmp_path / 'target'
    assert run_here(TOOL, tutorial, target).count('1 images and labels') == 3
    written = sorted(str(p.relative_to(target)) for p in target.rglob('*.*'))
    assert written == [
        'annotations/test/Seq05VD_f00000.png',
        'annotations/train/0001TP_006690.png',
        'annotations/val/0016E5_07959.png',
        'images/test/Seq05VD_f00000.jpg',
        'images/train/0001TP_006690.jpg',
        'images/val/0016E5_07959.jpg',
    ]
    label = cv2.imread(str(target / written[0]), -1)
    assert label.shape == (360, 480)
    # Unlabelled pixels become void.
    assert label[::30, 7].tolist() == [*range(11), 255]
    image = cv2.imread(str(target / written[3])).astype(int)
    assert np.abs(image - (200, 90, 10)).max() <= 3
    with pytest.raises(ValueError, match=r'a folder with train/\*.png'):
        run_here(TOOL, target, target)


def test_the_short_chain(tutorial, tmp_path):
    git = ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-C', tutorial.parent)
    for command in (('init', '-q'), ('add', '.'), ('commit', '-q', '-m', 'a')):
        subprocess.run([*git, *command], check=True)
    for name in ('tools/camvid.sh', '.venv/bin/python'):
        (tmp_path / 'copy' / name).parent.mkdir(parents=True)
    shutil.copy(ROOT / 'tools/camvid.sh', tmp_path / 'copy/tools')
    python = tmp_path / 'copy/.venv/bin/python'
    python.write_text(PYTHON)
    python.chmod(0o755)
    env = dict(os.environ, ITERS='20', MORE='20', SOURCE=f'file://{tutorial.parent}')
    env['WEIGHTS'] = 'dinov2.pth'
    commands = tmp_path / 'copy/commands'

    def run(*args):
        commands.write_text('')
        script = [tmp_path / 'copy/tools/camvid.sh', *args]
        subprocess.run(script, cwd=tmp_path, env=env, check=True, capture_output=True)
        lines = commands.read_text().splitlines()
        return [line.split()[0].rpartition('/')[2] for line in lines], lines

    tools, lines = run()
    assert tools == ['camvid.py', 'train.py', 'make_elastic.py']
    assert lines[0].split()[1].endswith('tutorial/CamVid')
    parser = ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    parser.add_argument('--iters', type=int)
    train = parser.parse_known_args(shlex.split(lines[1]))[0]
    assert train.iters == 20
    network = load_config(ROOT / lines[1].split()[1], train.cfg_options)
    assert network.model.backbone.init_cfg.checkpoint == 'dinov2.pth'
    assert lines[1].split()[1] == lines[2].split()[1]
    assert (tmp_path / 'copy' / lines[2].split()[2]).exists()
    # Once more, nothing is fetched, trained or measured again.
    assert run() == ([], [])

    tools, lines = run('pair')
    steps = 'export_stitch.py', 'stitch_models.py', 'train.py', 'train.py'
    assert tools == [*steps, 'make_elastic.py', *['test.py'] * 3, 'compare_fronts.py']
    both, more = (parser.parse_known_args(shlex.split(n))[0] for n in lines[2:4])
    assert both.iters == more.iters == 20
    assert more.cfg_options['model.init_cfg.checkpoint'].endswith('network/iter_20.pth')
    assert lines[-1].count('/1/stitches.json') == 3
    assert run('pair')[0] == ['compare_fronts.py']
