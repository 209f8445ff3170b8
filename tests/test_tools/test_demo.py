import json

import pytest
import torch

SLOW = [
    ('depth', 'dpt_{}_1xb16-300', 'RMSE', 2),
    ('det', 'mask-rcnn_{}_1xb8-300', 'coco/bbox_mAP', 3),
    ('cls', 'cls_{}_1xb16-600', 'accuracy/top1', 2),
]
TASKS = [('seg', 'setr-naive_{}_1xb16-300', 'mIoU', 2)]
TASKS += [pytest.param(*t, marks=pytest.mark.slow) for t in SLOW]


@pytest.mark.parametrize('task, name, metric, digits', TASKS)
def test_anchors_are_trained_stitched_and_reported(
    run_demo, task, name, metric, digits
):
    work_dir, printed = run_demo(task)
    results = json.loads((work_dir / 'stitches.json').read_text())
    assert [s['id'] for s in results['stitches']] == [0, 1, 2, 3, 4, *range(6, 15)]
    for stitch in results['stitches']:
        assert stitch['route'] in printed
        assert f'{stitch["metrics"][metric]:.{digits}f}' in printed
    for column in ('id', 'kind', 'route', 'GFLOPs', 'params', metric, 'Pareto'):
        assert column in printed
    for picture in ('pareto.png', 'predictions.png'):
        assert (work_dir / picture).read_bytes().startswith(b'\x89PNG')
    for words in ('slow anchor alone', 'One file with', '--results', 'Done in'):
        assert words in printed

    def weights_of(model, iters=9):
        folder = work_dir / f'{name.format(model)}_toy-scenes-64x64'
        path = folder / f'iter_{iters}.pth'
        return torch.load(path, weights_only=False)['state_dict']

    stitched, key = weights_of('snnetv2-fast-slow', 6), 'blocks.0.attn.qkv.weight'
    for anchor, model in enumerate(('vit-fast', 'vit-slow')):
        before = weights_of(model)[f'backbone.{key}']
        after = stitched[f'backbone.anchors.{anchor}.{key}']
        # Six steps more move weights a little; another random start would be far off.
        assert (after - before).norm() < 0.3 * before.norm()
    assert stitched['backbone.stitching_initialized']
