import pytest
import torch

from snnet_mm.apis import init_model

CONFIG = 'configs/toy/{}_snnetv2-fast-slow_1xb16-300_toy-scenes-64x64.py'


def test_depths_of_stitches_are_drawn_and_other_tasks_refused(run_here, tmp_path):
    args = {}
    for head in ('dpt', 'setr-naive'):
        args[head] = CONFIG.format(head), tmp_path / f'{head}.pth', '--out'
        torch.save(
            init_model(args[head][0], None, device='cpu').state_dict(), args[head][1]
        )
    out, options = tmp_path / 'depth.png', ('--stitch-id', '0,9,1', '--images', 2, 7)
    printed = run_here('analysis_tools/draw_depth.py', *args['dpt'], out, *options)
    assert printed.splitlines()[-1] == f'Wrote {out}'
    assert out.read_bytes().startswith(b'\x89PNG')
    with pytest.raises(ValueError, match='dataset=.* allowed: a set with depth'):
        run_here(
            'analysis_tools/draw_depth.py', *args['setr-naive'], tmp_path / 'a.png'
        )
    assert not (tmp_path / 'a.png').exists()
