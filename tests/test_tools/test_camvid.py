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
case $1 in
*camvid.py) mkdir -p "$3" ;;
*train.py) mkdir -p "$4" && touch "$4/iter_20.pth" ;;
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
    env = dict(os.environ, ITERS='20', SOURCE=f'file://{tutorial.parent}')
    env['WEIGHTS'] = 'dinov2.pth'
    script = [tmp_path / 'copy/tools/camvid.sh']
    subprocess.run(script, cwd=tmp_path, env=env, check=True, capture_output=True)
    lines = (tmp_path / 'copy/commands').read_text().splitlines()
    assert lines[0].split()[1].endswith('tutorial/CamVid')
    tools = [line.split()[0].rpartition('/')[2] for line in lines[1:]]
    assert tools == ['train.py', 'make_elastic.py']
    parser = ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    parser.add_argument('--iters', type=int)
    train, elastic = (parser.parse_known_args(shlex.split(n))[0] for n in lines[1:])
    assert (train.iters, elastic.iters) == (20, 0)
    network = load_config(ROOT / lines[1].split()[1], train.cfg_options)
    assert network.model.backbone.init_cfg.checkpoint == 'dinov2.pth'
    assert lines[1].split()[1] == lines[2].split()[1]
    assert (tmp_path / 'copy' / lines[2].split()[2]).exists()
    # Once more, nothing is fetched or trained again.
    subprocess.run(script, cwd=tmp_path, env=env, check=True, capture_output=True)
    again = (tmp_path / 'copy/commands').read_text().splitlines()[len(lines) :]
    assert again == lines[2:]
