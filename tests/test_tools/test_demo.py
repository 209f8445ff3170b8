import json
from importlib.util import find_spec

import pytest
import torch

NAME = '{}_{}_1xb16-300_toy-scenes-64x64'
TASKS = [
    ('seg', 'setr-naive', 'mIoU'),
    ('depth', 'dpt', 'RMSE'),
    pytest.param(
        *('cls', 'cls', 'accuracy/top1'),
        marks=pytest.mark.skipif(
            not find_spec('mmpretrain'), reason='mmpretrain is not installed'
        ),
    ),
]


@pytest.mark.parametrize('task, method, metric', TASKS)
def test_demo_ends_with_a_table_and_a_picture(run_demo, task, method, metric):
    work_dir, printed = run_demo(task)
    results = json.loads((work_dir / 'stitches.json').read_text())
    assert [s['id'] for s in results['stitches']] == [0, 1, 2, 3, 4, *range(6, 15)]
    for stitch in results['stitches']:
        assert stitch['route'] in printed
        assert f'{stitch["metrics"][metric]:.2f}' in printed
    for column in ('id', 'kind', 'route', 'GFLOPs', 'params', metric, 'Pareto'):
        assert column in printed
    assert (work_dir / 'pareto.png').read_bytes().startswith(b'\x89PNG')


@pytest.mark.parametrize('task, method, metric', TASKS)
def test_stitched_training_starts_from_both_anchors(run_demo, task, method, metric):
    work_dir, _ = run_demo(task)
    states = {
        name: torch.load(
            work_dir / NAME.format(method, name) / 'iter_3.pth', weights_only=False
        )['state_dict']
        for name in ('vit-fast', 'vit-slow', 'snnetv2-fast-slow')
    }
    for anchor, name in enumerate(('vit-fast', 'vit-slow')):
        key = 'blocks.0.attn.qkv.weight'
        before = states[name][f'backbone.{key}']
        after = states['snnetv2-fast-slow'][f'backbone.anchors.{anchor}.{key}']
        # Three steps move weights a little; another random start would be far off.
        assert (after - before).norm() < 0.3 * before.norm()
    assert states['snnetv2-fast-slow']['backbone.stitching_initialized']


def test_demo_refuses_no_iterations(run_tool):
    done = run_tool('demo.py', '--iters', 0, ok=False)
    assert '--iters 0: allowed is 1 or more' in done.stderr
