import json
import re

import torch

from snnet_mm.utils import load_weights_only


def rows_of(folder):
    return json.loads((folder / 'stitches.json').read_text())['stitches']


def test_both_ways_are_reported_with_latencies_of_one_thread(demo):
    work_dir, printed = demo
    pair, budgets = (rows_of(work_dir / name) for name in ('stitched', 'elastic'))
    assert [row['kind'] for row in pair[:2]] == ['anchor', 'anchor']
    assert len(pair) == 14
    assert 1 < len(budgets) <= 6
    for row in pair:
        assert f'{row["metrics"]["mIoU"]:.2f}' in printed
    for row in budgets:
        assert row['latency'] > 0
        assert f'{row["metrics"]["mIoU"]:.4g}' in printed
    setup = json.loads((work_dir / 'elastic' / 'stitches.json').read_text())['setup']
    assert setup['device'].endswith(', 1 thread')
    assert re.search(r'network +│ .* 100% │ .* 100.0% │', printed)
    for folder in ('stitched', 'elastic'):
        for picture in ('pareto.png', 'predictions.png'):
            path = work_dir / folder / picture
            assert path.read_bytes().startswith(b'\x89PNG')
    _, commands = printed.split('=== Done. Next')
    tools = re.findall(r'^  python tools/(\w+).py', commands, re.MULTILINE)
    assert tools == ['test', 'test', 'export_stitch', 'web_demo']


def test_both_ways_start_from_the_trained_networks(demo):
    work_dir, _ = demo
    slow = load_weights_only(work_dir / 'slow' / 'iter_3.pth')['state_dict']
    stitched = load_weights_only(work_dir / 'stitched.pth')['state_dict']
    elastic = load_weights_only(work_dir / 'elastic' / 'elastic.pth')['state_dict']
    for key, value in slow.items():
        for index, weights in (('1', stitched), ('0', elastic)):
            name = re.sub('^backbone.', f'backbone.anchors.{index}.', key)
            assert torch.equal(weights[name], value), name
    held = torch.load(work_dir / 'elastic' / 'elastic.pth', weights_only=True)
    assert held['meta']['base_checkpoint']['path'] == '../slow/iter_3.pth'
