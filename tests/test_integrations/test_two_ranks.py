"""Detectors and classifiers in two processes on a CPU."""

import json
from pathlib import Path

import pytest
import torch
from launching import run_script
from mmengine.config import Config
from mmengine.runner import Runner
from narrow_configs import without_weights

TOY = Path(__file__).parents[2] / 'configs' / 'toy'
STITCHES = 0, 7, 1


def cls_cfg():
    cfg = Config.fromfile(TOY / 'cls_snnetv2-fast-slow_1xb16-600_toy-scenes-64x64.py')
    without_weights(cfg.model)
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.train_dataloader.update(batch_size=2)
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    return cfg


@pytest.mark.slow
@pytest.mark.parametrize(
    'task, metric', [('cls', 'accuracy/top1'), ('det', 'coco/bbox_mAP')]
)
def test_two_ranks_train_alike_and_test_as_one(task, metric, tmp_path, request):
    cfg = cls_cfg() if task == 'cls' else request.getfixturevalue('det_cfg')
    cfg.custom_imports.imports.append('rank_hooks')
    cfg.custom_hooks = [dict(type='RankRecorder')]
    cfg.param_scheduler = []
    cfg.train_cfg.max_iters = cfg.default_hooks.checkpoint.interval = 3
    # Padded to ten by two ranks.
    cfg.test_dataloader.update(batch_size=1)
    cfg.test_dataloader.dataset.num_scenes = 9
    cfg.dump(tmp_path / 'config.py')

    args = (tmp_path / 'config.py', 2, '--work-dir', tmp_path / 'two')
    done = run_script('dist_train.sh', *args, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = (torch.load(tmp_path / f'two/rank_{r}.pth') for r in (0, 1))
    assert first['stitches'] == second['stitches']
    assert all(v.equal(second['end'][k]) for k, v in first['end'].items())
    assert any(not v.equal(first['start'][k]) for k, v in first['end'].items())

    checkpoint, ids = tmp_path / 'two/iter_3.pth', ','.join(map(str, STITCHES))
    args = (tmp_path / 'config.py', checkpoint, 2, '--work-dir', tmp_path / 'test')
    done = run_script('dist_test.sh', *args, '--stitch-id', ids, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
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
    assert len({s['metrics'][metric] for s in expected['stitches']}) > 1
