"""Detectors in two processes on a CPU."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from launching import run_script
from mmengine.runner import Runner

STITCHES = 0, 7, 1

SRUN = """#!/usr/bin/env bash
# Starts every task on this machine.
for arg; do case $arg in --ntasks=*) ntasks=${arg#*=} ;; esac done
while [[ $1 == --* ]]; do shift; done
export SLURM_NTASKS=$ntasks SLURM_NODELIST=here
for ((i = 0; i < ntasks; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit; done
"""


@pytest.fixture
def slurm(tmp_path):
    """Commands of a cluster of this machine alone."""
    (folder := tmp_path / 'bin').mkdir()
    for name, text in dict(srun=SRUN, scontrol='#!/bin/sh\necho 127.0.0.1').items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = f'{folder}:{Path(sys.executable).parent}:{os.environ["PATH"]}'
    return dict(PATH=path, GPUS='2')


@pytest.fixture
def cfg(det_cfg):
    """Three iterations that every rank records, and a test padded to ten images."""
    det_cfg.custom_imports.imports.append('rank_hooks')
    det_cfg.custom_hooks = [dict(type='RankRecorder')]
    det_cfg.train_cfg.max_iters = det_cfg.default_hooks.checkpoint.interval = 3
    det_cfg.test_dataloader.update(batch_size=1)
    det_cfg.test_dataloader.dataset.num_scenes = 9
    return det_cfg


@pytest.mark.slow
def test_slurm_train_and_dist_test_two_ranks_agree(cfg, tmp_path, slurm):
    """They train alike by the script of Slurm, and test as one by that of a machine."""
    cfg.dump(config := tmp_path / 'config.py')
    args = 'cpu', 'toy', config, '--work-dir', tmp_path / 'two'
    done = run_script('slurm_train.sh', *args, cwd=tmp_path, **slurm)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (torch.load(tmp_path / f'two/rank_{r}.pth') for r in (0, 1))
    assert first['stitches'] == second['stitches']
    assert all(v.equal(second['end'][k]) for k, v in first['end'].items())
    assert any(not v.equal(first['start'][k]) for k, v in first['end'].items())

    checkpoint, ids = tmp_path / 'two/iter_3.pth', ','.join(map(str, STITCHES))
    args = config, checkpoint, 2, '--work-dir', tmp_path / 'test'
    done = run_script('dist_test.sh', *args, '--stitch-id', ids, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(' 3 stitches at 64x64 ') == 1
    (written,) = (tmp_path / 'test').glob('*/stitches.json')
    cfg.pop('custom_hooks')
    cfg.load_from, cfg.work_dir = str(checkpoint), str(tmp_path / 'one')
    cfg.test_cfg = dict(
        type='StitchTestLoop', stitches=STITCHES, out_dir=str(tmp_path / 'one')
    )
    Runner.from_cfg(cfg).test()
    expected = json.loads((tmp_path / 'one/stitches.json').read_text())
    assert json.loads(written.read_text()) == expected
    assert {s['id'] for s in expected['stitches']} == set(STITCHES)
    # Equal, and not because there is nothing to see.
    assert len({s['metrics']['coco/bbox_mAP'] for s in expected['stitches']}) > 1
