import json
import re

import pytest
import torch

from snnet_mm.utils import load_weights_only

SLOW = [
    ('depth', 'dpt', 'RMSE'),
    ('det', 'fcos', 'coco/bbox_mAP'),
    ('cls', 'cls', 'accuracy/top1'),
]
TASKS = [('seg', 'setr-naive', 'mIoU')]
TASKS += [pytest.param(*t, marks=pytest.mark.slow) for t in SLOW]


@pytest.mark.parametrize('task, name, metric', TASKS)
def test_a_network_is_trained_made_elastic_and_reported(run_demo, task, name, metric):
    work_dir, printed = run_demo(task)
    stitches = json.loads((work_dir / 'stitches.json').read_text())['stitches']
    assert [s['id'] for s in stitches] == [*range(len(stitches))]
    assert 1 < len(stitches) <= 6
    costs = [s['flops'] for s in stitches]
    assert costs == sorted(costs, reverse=True)
    for stitch in stitches:
        assert stitch['latency'] > 0
        assert f'{stitch["metrics"][metric]:.4g}' in printed
    last, whole = ('more error', ' ') if task == 'depth' else ("of network's", '100.0%')
    for name in ('ms', 'GFLOPs', 'params', 'of FLOPs', 'network', last):
        assert name in printed
    assert re.search(rf'network +│ .* 100% │ .* {whole} │', printed)
    for picture in ('pareto.png', 'predictions.png'):
        assert (work_dir / picture).read_bytes().startswith(b'\x89PNG')
    for words in ('equal bit for bit', 'Next:', 'tools/export_stitch.py', 'Done in'):
        assert words in printed
    base = load_weights_only(work_dir / 'network' / 'iter_9.pth')['state_dict']
    elastic = load_weights_only(work_dir / 'elastic.pth')['state_dict']
    for key, value in base.items():
        key = re.sub('^backbone.', 'backbone.anchors.0.', key)
        assert torch.equal(elastic[key], value), key
    held = torch.load(work_dir / 'elastic.pth', weights_only=True)
    assert held['meta']['base_checkpoint']['path'] == 'network/iter_9.pth'
    names = {'stitching_layers', 'stitching_initialized', '_extra_state'}
    added = {k.split('.')[1] for k in held['state_dict']}
    assert added - {'unit_orders'} == names
