import copy

import pytest
import torch
from mmengine.registry import DATA_SAMPLERS
from mmengine.runner import Runner
from torch.utils.data import BatchSampler
from watching_hooks import Recorder, train

from snnet_mm.engine import StitchInitHook
from snnet_mm.models import find_stitched_backbone


def layers_of(state):
    return {k: v for k, v in state.items() if 'stitching_layers' in k}


@pytest.mark.parametrize('task', ['seg', 'depth'])
def test_least_squares_sets_the_layers_before_training(toy_cfg):
    runner, recorder = train(toy_cfg)
    backbone = find_stitched_backbone(runner.model)
    assert backbone.stitching_initialized
    # The base maps stay frozen; the low-rank updates start at zero and are trained.
    for key, start in layers_of(recorder.start).items():
        now = runner.model.state_dict()[key]
        if key.endswith(('weight', 'bias')):
            assert torch.equal(start, now)
        if key.endswith('lora_B'):
            assert not start.any()
    # Fitting again on the very same images gives the same maps.
    hook = next(h for h in runner.hooks if isinstance(h, StitchInitHook))
    fresh = Runner.from_cfg(toy_cfg)
    fresh.model.load_state_dict(recorder.start)
    fresh.model.backbone.stitching_initialized.fill_(False)
    fresh._train_loop = fresh.build_train_loop(fresh._train_loop)
    state = torch.get_rng_state()
    hook.before_train(fresh)
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in layers_of(fresh.model.state_dict()).items():
        torch.testing.assert_close(value, recorder.start[key])


@DATA_SAMPLERS.register_module()
class GroupingSampler(BatchSampler):
    """As mmdet's AspectRatioBatchSampler: the loader knows no batch size."""

    def __init__(self, sampler, batch_size):
        super().__init__(sampler, batch_size, drop_last=False)


def test_images_of_a_loader_with_a_batch_sampler(toy_cfg):
    _, plain = train(toy_cfg)
    toy_cfg.train_dataloader.batch_sampler = dict(type='GroupingSampler')
    toy_cfg.work_dir += '/grouped'
    runner, grouped = train(toy_cfg)
    assert runner.train_dataloader.batch_size is None
    fitted = layers_of(plain.start)
    torch.testing.assert_close(layers_of(grouped.start), fitted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ('task', 'methods'),
    [
        ('seg', ('kaiming', 'least-squares')),
        ('depth', ('least-squares', 'kaiming')),
    ],
)
def test_loaded_stitching_layers_are_kept(toy_cfg, methods):
    toy_cfg.default_hooks.stitch_init.method, then = methods
    runner, _ = train(toy_cfg)
    trained = layers_of(runner.model.state_dict())
    toy_cfg.load_from = f'{toy_cfg.work_dir}/iter_2.pth'
    toy_cfg.work_dir += '/next'
    toy_cfg.default_hooks.stitch_init.method = then
    _, recorder = train(toy_cfg)
    for key, value in trained.items():
        assert torch.equal(recorder.start[key], value)


def test_random_layers_stay_as_they_were_built(toy_cfg):
    toy_cfg.default_hooks.stitch_init.method = 'kaiming'
    toy_cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    recorder = Recorder()
    runner = Runner.from_cfg(toy_cfg)
    built = copy.deepcopy(layers_of(runner.model.state_dict()))
    runner.register_hook(recorder)
    runner.train()
    assert built
    for key, value in built.items():
        assert torch.equal(recorder.start[key], value), key
    # torch gives a linear layer no weight beyond one over the root of its width.
    weights = {k: v for k, v in built.items() if k.endswith('.weight')}
    for weight in weights.values():
        bound = weight.shape[1] ** -0.5
        assert 0.9 * bound < weight.abs().max() <= bound
    ema = next(h for h in runner.hooks if type(h).__name__ == 'EMAHook').ema_model
    for model in (runner.model, ema):
        assert find_stitched_backbone(model).stitching_initialized
    # The checkpoint says so too: a resumed run does not fit them.
    toy_cfg.default_hooks.stitch_init.method = 'least-squares'
    trained = layers_of(runner.model.state_dict())
    _, second = train(toy_cfg, **{'train_cfg.max_iters': 3, 'resume': True})
    for key, value in trained.items():
        assert torch.equal(second.start[key], value), key


def test_stitching_layers_can_be_all_that_is_trained(toy_cfg):
    """Figure 9c of SN-Netv1, as docs/spaces.md says it in a config."""
    backbone = toy_cfg.model.backbone
    backbone.stitching_layer = dict(type='StitchingLayer')
    for anchor in backbone.anchors:
        anchor.frozen_stages = anchor.arch.depth
    toy_cfg.optim_wrapper.paramwise_cfg.custom_keys.decode_head = dict(lr_mult=0)
    runner, recorder = train(toy_cfg, **{'train_cfg.max_iters': 4})
    space = find_stitched_backbone(runner.model).space
    last = f'0to1_{space.depths[0] - 1}'  # serves the map of the fast anchor's end
    expected = set()
    for stitch in map(space.__getitem__, recorder.stitches):
        expected |= {*stitch.layers, *([last] if stitch.end_anchor == 0 else [])}
    moved = {
        name
        for name, value in runner.model.named_parameters()
        if not value.equal(recorder.start[name])
    }
    assert 1 < len(expected) < len(space.layers)
    assert moved == {
        f'backbone.stitching_layers.{name}.{key}'
        for name in expected
        for key in ('weight', 'bias')
    }


def test_a_model_average_starts_from_the_fitted_layers(toy_cfg):
    toy_cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    runner, recorder = train(toy_cfg, **{'train_cfg.max_iters': 1})
    ema = next(h for h in runner.hooks if type(h).__name__ == 'EMAHook').ema_model
    backbone = find_stitched_backbone(ema)
    assert backbone.stitching_initialized
    for key, value in layers_of(ema.module.state_dict()).items():
        if key.endswith('weight'):
            torch.testing.assert_close(value, recorder.start[key])


@pytest.mark.parametrize('wrong', [dict(method='xavier'), dict(num_images=0)])
def test_wrong_settings_are_refused(wrong):
    (key,) = wrong
    with pytest.raises(ValueError, match=f'{key}=.*StitchInitHook.{key}'):
        StitchInitHook(**wrong)
