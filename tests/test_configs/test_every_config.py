"""Every config says what to expect, builds, trains exactly after a resume."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

CONFIGS = Path(__file__).parents[2] / 'configs'
ALL = sorted(p for p in CONFIGS.rglob('*.py') if '_base_' not in p.parts)


@pytest.mark.parametrize('path', ALL, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_config(path):
    lines = path.read_text().splitlines()
    header = ' '.join(line for line in lines if line.startswith('#'))
    assert 'batch' in header
    assert 'paper' in header.lower()
    assert 'measured' in header or 'not yet run' in header
    assert not any('::' in line for line in lines if 'timm://' not in line)

    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    classes = cfg.get('metainfo', {}).get('classes')
    if classes:
        detects = hasattr(model, 'roi_head')
        head = model.roi_head.bbox_head if detects else model.decode_head
        assert head.num_classes == len(classes)

    hooks = cfg.default_hooks
    assert hooks.exact_resume.type == 'ExactResumeHook'
    assert hooks.checkpoint.type == 'StitchCheckpointHook'
    assert hooks.checkpoint.by_epoch is False
    # By default as often as validation.
    assert hooks.checkpoint.get('interval', cfg.train_cfg.val_interval) > 0
    assert cfg.randomness.seed == 0
    stitched = {'stitch_init', 'stitch_sampling', 'stitch_report'} & set(hooks)
    assert bool(stitched) == ('Stitch' in cfg.test_cfg.type)
    loader = cfg.train_dataloader
    assert loader.sampler.type == 'SeededSampler'
    assert loader.dataset.type == 'SeededDataset'
    # What is measured on is the same data set, without random augmentation.
    assert cfg.test_dataloader.dataset.type == loader.dataset.of
