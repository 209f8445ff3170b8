"""Every config says what to expect, builds, trains exactly after a resume."""

import pytest
from config_models import CONFIGS, load, paths


@pytest.mark.parametrize('name', paths('**/*.py'))
def test_config(name):
    lines = (CONFIGS / name).read_text().splitlines()
    header = ' '.join(line for line in lines if line.startswith('#'))
    assert 'batch' in header
    assert 'paper' in header.lower()
    assert 'measured' in header or 'not yet run' in header
    assert not any('::' in line for line in lines if 'timm://' not in line)

    cfg, model = load(name)
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
