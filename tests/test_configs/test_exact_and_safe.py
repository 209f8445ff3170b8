"""Every config trains exactly after a resume, and saves safely."""

from pathlib import Path

import pytest
from mmengine.config import Config

CONFIGS = Path(__file__).parents[2] / 'configs'
ALL = sorted(p for p in CONFIGS.rglob('*.py') if '_base_' not in p.parts)


@pytest.mark.parametrize('path', ALL, ids=lambda p: str(p.relative_to(CONFIGS)))
def test_config_resumes_exactly_and_saves_safely(path):
    cfg = Config.fromfile(path)
    hooks = cfg.default_hooks
    assert hooks.exact_resume.type == 'ExactResumeHook'
    assert hooks.checkpoint.type == 'StitchCheckpointHook'
    assert hooks.checkpoint.by_epoch is False
    # By default as often as validation.
    assert hooks.checkpoint.get('interval', cfg.train_cfg.val_interval) > 0
    assert cfg.randomness.seed is not None
    loader = cfg.train_dataloader
    assert loader.sampler.type == 'SeededSampler'
    assert loader.dataset.type == 'SeededDataset'
    # What is measured on is the same data set, without random augmentation.
    assert cfg.test_dataloader.dataset.type == loader.dataset.of
