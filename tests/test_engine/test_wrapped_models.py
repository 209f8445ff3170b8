import copy

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner
from watching_hooks import Losses, train

from snnet_mm.apis import init_model
from snnet_mm.utils import load_weights_only


@pytest.fixture
def sandwich_cfg(toy_cfg):
    """Each iteration trains both anchors and two other stitches."""
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    toy_cfg.default_hooks.stitch_sampling.sampler = dict(
        type='SandwichSampler', num_random=2
    )
    return toy_cfg


def test_checkpoints_of_a_wrapper_are_those_of_its_model(sandwich_cfg):
    trained, _ = train(sandwich_cfg)
    state = trained.model.state_dict()
    plain = sandwich_cfg.copy()
    plain.model = plain.model.model
    plain.default_hooks.stitch_sampling.sampler = dict(type='UniformSampler')
    # The optimizer goes by the same names, too.
    runner, recorder = train(plain, **{'resume': True, 'train_cfg.max_iters': 3})
    for key, value in recorder.start.items():
        assert torch.equal(value, state[key]), key
    # And back, the stitches evaluated by the wrapper and by its model.
    sandwich_cfg.load_from = f'{sandwich_cfg.work_dir}/iter_3.pth'
    sandwich_cfg.test_cfg.stitches = (0, 1, 6)
    plain.merge_from_dict(
        dict(load_from=sandwich_cfg.load_from, test_cfg=sandwich_cfg.test_cfg)
    )
    metrics = [Runner.from_cfg(cfg).test() for cfg in (sandwich_cfg, plain)]
    assert metrics[0] == metrics[1]
    model = init_model(sandwich_cfg, sandwich_cfg.load_from, stitch=6)
    assert type(model).__name__ == 'EncoderDecoder'
    state = runner.model.state_dict()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_segmentors_learn_from_a_trained_one(toy_cfg):
    """By their logits of every pixel; the teacher is the slow anchor by itself."""
    teacher = copy.deepcopy(toy_cfg.model)
    teacher.backbone = dict(teacher.backbone.anchors[1], type='PlainViT')
    init_default_scope(toy_cfg.default_scope)
    weights = MODELS.build(teacher).state_dict()
    torch.save(weights, f'{toy_cfg.work_dir}/teacher.pth')
    toy_cfg.model = dict(
        type='DistillationWrapper',
        model=toy_cfg.model,
        teacher=teacher,
        teacher_checkpoint=f'{toy_cfg.work_dir}/teacher.pth',
        labels='soft',
    )
    toy_cfg.custom_hooks = [dict(type='EMAHook')]
    runner = Runner.from_cfg(toy_cfg)
    losses = Losses()
    runner.register_hook(losses)
    runner.train()
    saved = load_weights_only(f'{toy_cfg.work_dir}/iter_2.pth')
    names = runner.model.wrapped.state_dict().keys()
    assert saved['state_dict'].keys() == names
    averaged = {k.removeprefix('module.') for k in saved['ema_state_dict']}
    assert averaged - {'steps'} == names
    distilled = runner.message_hub.get_scalar('train/loss_distill').data[0]
    assert distilled.min() > 0
    assert (distilled < losses.losses).all()


@pytest.mark.parametrize('task', ['depth'])
def test_depth_has_no_labels_to_distil(sandwich_cfg):
    with pytest.raises(ValueError, match='what has no classes, such as depth'):
        train(sandwich_cfg)
    sandwich_cfg.model.labels = None
    runner, _ = train(sandwich_cfg)
    parts = [k for k in runner.message_hub.log_scalars if '.' in k and 'loss' in k]
    roles = {k.split('.')[0].removeprefix('train/') for k in parts}
    assert roles == {'slowest', 'fastest', 'stitch0', 'stitch1'}
    assert not any('distill' in k for k in parts)


def test_several_stitches_are_for_a_wrapper_and_one_is_not(toy_cfg):
    plain, sandwich = toy_cfg.copy(), toy_cfg
    plain.default_hooks.stitch_sampling.sampler = dict(type='SandwichSampler')
    with pytest.raises(ValueError, match="EncoderDecoder.*'SandwichWrapper'"):
        train(plain)
    sandwich.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    sandwich.default_hooks.stitch_sampling.sampler = dict(type='UniformSampler')
    with pytest.raises(ValueError, match="one of the anchors .*'SandwichSampler'"):
        train(sandwich)
