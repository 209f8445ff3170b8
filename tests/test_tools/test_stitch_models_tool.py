import re

import pytest
import torch
from mm_models import seg_vit
from mmengine.registry import MODELS, init_default_scope
from small import toy

from snnet_mm.stitching import StitchTable
from snnet_mm.utils import load_config

SHORT = """
train_dataloader = dict(batch_size=2)
val_dataloader = dict(dataset=dict(num_scenes=4))
test_dataloader = val_dataloader
"""
BASE = toy('seg', 'vit-fast')
PSP = dict(_delete_=True, type='PSPHead', in_channels=16, channels=8, num_classes=5)
PAIR = dict(slow=seg_vit(24, 4), fast=seg_vit(16, 3) | dict(decode_head=PSP))


@pytest.fixture
def files(tmp_path):
    """Configs and checkpoints of both models, with random weights."""
    init_default_scope('mmseg')
    for name, model in PAIR.items():
        config = tmp_path / f'{name}.py'
        config.write_text(f'_base_ = [{BASE!r}]\nmodel = {model}{SHORT}')
        weights = MODELS.build(load_config(config).model).state_dict()
        torch.save(dict(state_dict=weights), tmp_path / f'{name}.pth')
    return [tmp_path / f'{name}.{end}' for name in PAIR for end in ('py', 'pth')]


@pytest.mark.slow
def test_stitch_models_trained_pair_trains_and_tests(run_here, files, tmp_path):
    out = tmp_path / 'stitched.py'
    with pytest.raises(ValueError, match='--shape'):
        run_here('stitch_models.py', *files, '--out', out, '--shape', '64')
    printed = run_here('stitch_models.py', *files, '--out', out)
    fast, slow, note, wrote, *_ = printed.splitlines()
    assert (fast, slow) == (f'fast: {files[2]}', f'slow: {files[0]}')
    assert note == "Note: the heads differ; the slow model's SETRUPHead is used"
    assert wrote.startswith(f'Wrote {out}: 8 stitches, ')
    train, test = re.findall(r'  python tools/(.*)', printed)
    assert train.split() == ['train.py', str(out)]
    assert test.endswith(' work_dirs/stitched/iter_300.pth --stitch-id all')
    both = '--work-dir', tmp_path / 'both'
    run_here(*train.split(), *both, '--iters', 2)
    run_here('test.py', out, tmp_path / 'both/iter_2.pth', '--stitch-id', 'all', *both)
    tested = StitchTable.read(next((tmp_path / 'both').glob('*/stitches.json')))
    assert len(tested) == 8
    assert all(0 <= score <= 100 for score in tested.scores().values())
