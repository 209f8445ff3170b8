import pytest
import torch
from equality import assert_same
from mmengine.registry import MODELS, init_default_scope
from tiny import tiny_config
from watching_hooks import train

from snnet_mm.inference.init_model import init_model
from snnet_mm.utils import load_weights_only


@pytest.mark.slow
def test_a_training_goes_on_with_and_without_a_wrapper(tmp_path):
    """A segmentor learns from its slow anchor, then alone, then from itself."""
    cfg = tiny_config()
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    del cfg.default_hooks['stitch_statistics']  # estimated anew by every training
    cfg.work_dir, teacher = str(tmp_path), cfg.model.copy()
    teacher.backbone = dict(teacher.backbone.anchors[1], type='PlainViT')
    init_default_scope(cfg.default_scope)
    torch.save(MODELS.build(teacher).state_dict(), tmp_path / 'teacher.pth')
    plain, path = cfg.model, str(tmp_path / 'teacher.pth')
    taught = dict(teacher=teacher, teacher_checkpoint=path, labels='soft')
    distilled = dict(type='DistillationWrapper', model=plain, **taught)
    sandwich = dict(type='SandwichWrapper', model=plain)
    weights, logged = None, []
    for n, model in enumerate((distilled, plain, sandwich), start=1):
        cfg.model, cfg.resume, cfg.train_cfg.max_iters = model, n > 1, n
        cfg.experiment_name = cfg.visualizer.name = f'{tmp_path.name}{n}'
        kind = 'SandwichSampler' if model is sandwich else 'UniformSampler'
        cfg.default_hooks.stitch_sampling.sampler = dict(type=kind)
        runner, recorder = train(cfg)
        if weights is not None:
            assert_same(recorder.start, weights)
        weights = dict(load_weights_only(tmp_path / f'iter_{n}.pth')['state_dict'])
        logged.append({k for k in runner.message_hub.log_scalars if 'distill' in k})
    assert logged[0] == logged[1] == {'train/loss_distill'}  # the past is resumed
    assert logged[2] - logged[1] == {
        f'train/{role}.loss_distill' for role in ('fastest', 'stitch0')
    }
    alone = init_model(cfg, f'{tmp_path}/iter_3.pth', stitch=2)
    assert type(alone).__name__ == 'EncoderDecoder'
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter, weights[name]), name
