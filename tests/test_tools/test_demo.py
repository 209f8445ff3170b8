import json
import re

import pytest
import torch

from snnet_mm.utils import load_weights_only

pytestmark = pytest.mark.slow


def test_demo_reports_both_ways(demo):
    work_dir, printed = demo
    for name, number, form in (('stitched', 4, '.2f'), ('elastic', 3, '.4g')):
        rows = json.loads((work_dir / name / 'stitches.json').read_text())['stitches']
        assert len(rows) == number
        for row in rows:
            assert format(row['metrics']['mIoU'], form) in printed
        for picture in ('pareto.png', 'predictions.png'):
            path = work_dir / name / picture
            assert path.read_bytes().startswith(b'\x89PNG')
    tools = re.findall(r'^  python tools/(\w+).py', printed, re.MULTILINE)
    assert tools == ['test', 'test', 'export_stitch', 'web_demo']


def test_demo_starts_both_ways_from_trained_networks(demo):
    work_dir, _ = demo
    slow = load_weights_only(work_dir / 'slow' / 'iter_2.pth')['state_dict']
    stitched = load_weights_only(work_dir / 'stitched.pth')['state_dict']
    elastic = load_weights_only(work_dir / 'elastic' / 'elastic.pth')['state_dict']
    for key, value in slow.items():
        for index, weights in (('1', stitched), ('0', elastic)):
            name = re.sub('^backbone.', f'backbone.anchors.{index}.', key)
            assert torch.equal(weights[name], value), name
