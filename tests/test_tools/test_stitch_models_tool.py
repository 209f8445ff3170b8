"""From two trained models to tested stitches, as the tool's last lines say."""

import json
import re

import launching
import pytest

TOY = 'configs/toy/{}_toy-scenes-64x64.py'
SHORT = """
train_cfg = dict(max_iters=2, val_interval=2)
param_scheduler = []
train_dataloader = dict(batch_size=2)
default_hooks = dict(checkpoint=dict(interval=2))
val_dataloader = dict(dataset=dict(num_scenes=4))
test_dataloader = val_dataloader
"""
VIT = dict(_delete_=True, type='VisionTransformer', img_size=(64, 64), patch_size=8)


def segmentor(dim, depth, head='FCNHead'):
    vit = dict(VIT, embed_dims=dim, num_layers=depth, num_heads=2)
    vit['out_indices'] = [depth - 1]
    head = dict(_delete_=True, type=head, in_channels=dim, channels=8, num_classes=6)
    return dict(backbone=vit, decode_head=head)


def classifier(dim, depth):
    arch = dict(embed_dims=dim, depths=(depth, 1), num_heads=(2, 4))
    swin = dict(_delete_=True, type='SwinTransformer', arch=arch, img_size=64)
    head = dict(_delete_=True, type='LinearClsHead', num_classes=3)
    return dict(
        backbone=dict(swin, window_size=4, out_indices=(1,)),
        neck=dict(type='GlobalAveragePooling'),
        head=dict(head, in_channels=2 * dim),
    )


MODELS = dict(
    seg=(
        'setr-naive_vit-fast_1xb16-300',
        segmentor,
        ((24, 4), (16, 3, 'PSPHead')),
        'mIoU',
        8,
    ),
    cls=('cls_vit-fast_1xb16-600', classifier, ((24, 4), (16, 2)), 'accuracy/top1', 5),
)


@pytest.mark.slow
@pytest.mark.parametrize('task', MODELS)
def test_train_stitch_train_test(task, run_tool, tmp_path):
    base, model, sizes, metric, number = MODELS[task]
    trained = []
    for name, size in zip(('slow', 'fast'), sizes, strict=True):
        config, folder = tmp_path / f'{name}.py', tmp_path / name
        bases = [str(launching.ROOT / TOY.format(base))]
        config.write_text(f'_base_ = {bases}\nmodel = {model(*size)}{SHORT}')
        run_tool('train.py', config, '--work-dir', folder)
        trained += [config, folder / 'iter_2.pth']
    out = tmp_path / 'stitched.py'
    printed = run_tool('stitch_models.py', *trained, '--out', out).stdout
    assert ('Note: the heads differ, FCNHead is kept' in printed) == (task == 'seg')
    train, test = re.findall(r'  python tools/(.*)', printed)
    assert f'{out}: {number} stitches' in printed
    assert train.split() == ['train.py', str(out)]
    assert 'work_dirs/stitched/iter_2.pth --stitch-id all' in test
    run_tool(*train.split(), '--work-dir', tmp_path / 'both')
    checkpoint = tmp_path / 'both' / 'iter_2.pth'
    args = ('--stitch-id', 'all', '--work-dir', tmp_path / 'tested')
    run_tool('test.py', out, checkpoint, *args)
    (results,) = (tmp_path / 'tested').glob('*/stitches.json')
    stitches = json.loads(results.read_text())['stitches']
    assert len(stitches) == number
    assert all(0 <= s['metrics'][metric] <= 100 for s in stitches)
