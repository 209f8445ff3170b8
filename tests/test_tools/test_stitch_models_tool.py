"""From two trained models to tested stitches, as the tool's last lines say."""

import json
import re

import pytest
from mm_models import SEG, TOY, seg_vit

SHORT = """
train_cfg = dict(max_iters=2, val_interval=2)
param_scheduler = []
train_dataloader = dict(batch_size=2)
default_hooks = dict(checkpoint=dict(interval=2))
val_dataloader = dict(dataset=dict(num_scenes=4))
test_dataloader = val_dataloader
"""
PSP = dict(_delete_=True, type='PSPHead', in_channels=16, channels=8, num_classes=5)
MODELS = dict(slow=seg_vit(24, 4), fast=seg_vit(16, 3) | dict(decode_head=PSP))


@pytest.mark.slow
def test_stitch_models_trained_pair_trains_and_tests(run_tool, tmp_path):
    trained = []
    for name, model in MODELS.items():
        config, folder = tmp_path / f'{name}.py', tmp_path / name
        bases = [TOY.format(SEG)]
        config.write_text(f'_base_ = {bases}\nmodel = {model}{SHORT}')
        run_tool('train.py', config, '--work-dir', folder)
        trained += [config, folder / 'iter_2.pth']
    out = tmp_path / 'stitched.py'
    printed = run_tool('stitch_models.py', *trained, '--out', out).stdout
    assert "the heads differ; the slow model's SETRUPHead is used" in printed
    train, test = re.findall(r'  python tools/(.*)', printed)
    assert f'{out}: 8 stitches' in printed
    assert train.split() == ['train.py', str(out)]
    assert 'work_dirs/stitched/iter_2.pth --stitch-id all' in test
    run_tool(*train.split(), '--work-dir', tmp_path / 'both')
    checkpoint = tmp_path / 'both' / 'iter_2.pth'
    args = ('--stitch-id', 'all', '--work-dir', tmp_path / 'tested')
    run_tool('test.py', out, checkpoint, *args)
    (results,) = (tmp_path / 'tested').glob('*/stitches.json')
    stitches = json.loads(results.read_text())['stitches']
    assert len(stitches) == 8
    assert all(0 <= s['metrics']['mIoU'] <= 100 for s in stitches)
