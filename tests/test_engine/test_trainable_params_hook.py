import pytest
import torch
from mmengine.runner import Runner
from watching_hooks import Recorder

from snnet_mm.engine import TrainableParamsHook
from snnet_mm.evaluation import count_parameters


def test_lora_trains_updates_stitching_layers_and_heads(toy_cfg, caplog):
    for anchor in toy_cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    toy_cfg.log_level = 'INFO'
    runner, recorder = Runner.from_cfg(toy_cfg), Recorder()
    runner.register_hook(recorder)
    runner.logger.addHandler(caplog.handler)
    runner.train()
    changed = {
        k
        for k, v in runner.model.named_parameters()
        if not torch.equal(v, recorder.start[k])
    }
    assert any('anchors.1' in k for k in changed)
    assert any('stitching_layers' in k for k in changed)
    assert any('decode_head' in k for k in changed)
    assert all('lora' in k for k in changed if k.startswith('backbone'))
    (said,) = (m for m in caplog.messages if m.startswith('Trained parameters'))
    counts = count_parameters(runner.model)
    assert f'backbone.anchors {counts["backbone.anchors"]}, ' in said
    # qkv and proj of four blocks x 32 and eight x 96 channels, rank 4.
    trained = 24 * (4 * 32 + 8 * 96)
    assert f'backbone.anchors {trained:,} of ' in said


def test_a_model_with_nothing_to_train_is_refused(toy_cfg):
    runner = Runner.from_cfg(toy_cfg)
    runner.model.requires_grad_(False)
    with pytest.raises(ValueError, match='all frozen .*lora'):
        TrainableParamsHook().before_train(runner)
