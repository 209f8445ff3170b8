import copy
import logging
from collections import Counter

import pytest
import torch
from mmengine.runner import Runner
from watching_hooks import Losses, Recorder, train

from snnet_mm.engine import StitchInitHook, TrainableParamsHook
from snnet_mm.evaluation import cost_table, count_parameters
from snnet_mm.models import find_stitched_backbone
from snnet_mm.models.stitching_init import fit_stitching_layers
from snnet_mm.utils import isolated_rng


def layers_of(state):
    return {k: v for k, v in state.items() if 'stitching_layers' in k}


@pytest.mark.parametrize('task', ['seg', 'depth'])
def test_sampling_is_the_same_after_a_resume(toy_cfg):
    toy_cfg.work_dir += '/straight'
    _, straight = train(toy_cfg, **{'train_cfg.max_iters': 6})
    assert len(set(straight.stitches)) > 2
    toy_cfg.work_dir += '/cut'
    _, first = train(toy_cfg, **{'train_cfg.max_iters': 3})
    _, second = train(toy_cfg, **{'train_cfg.max_iters': 6, 'resume': True})
    assert first.stitches + second.stitches == straight.stitches


def test_the_cost_of_the_sampled_stitch_is_logged(toy_cfg):
    runner, recorder = train(toy_cfg)
    costs = cost_table(runner.model)
    assert recorder.logged == [costs[i].flops / 1e9 for i in recorder.stitches]


def test_parts_of_the_model_are_asked_about_the_space(toy_cfg):
    class Picky(torch.nn.Module):
        def check_space(self, space):
            raise ValueError(f'not for {len(space)} stitches')

    runner = Runner.from_cfg(toy_cfg)
    runner.model.picky = Picky()
    with pytest.raises(ValueError, match='not for 14 stitches'):
        runner.train()


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
    fresh._train_loop = fresh.build_train_loop(fresh._train_loop)
    refit = find_stitched_backbone(fresh.model)
    with isolated_rng(fresh.seed):
        assert fit_stitching_layers(refit, hook._image_batches(fresh)) == 6
    for key, value in layers_of(fresh.model.state_dict()).items():
        torch.testing.assert_close(value, recorder.start[key])


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


def test_fitting_leaves_the_random_stream_alone(toy_cfg):
    runner = Runner.from_cfg(toy_cfg)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    state = torch.get_rng_state()
    StitchInitHook(num_images=2).before_train(runner)
    assert torch.equal(torch.get_rng_state(), state)


def test_more_images_than_there_are_is_said(toy_cfg, caplog):
    toy_cfg.train_dataloader.dataset.num_scenes = 3
    toy_cfg.log_level = 'WARNING'
    runner = Runner.from_cfg(toy_cfg)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    runner.logger.addHandler(caplog.handler)
    StitchInitHook(num_images=5).before_train(runner)
    messages = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert any('num_images=5' in m and '3 training images' in m for m in messages)


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method='xavier'; .*StitchInitHook.method"):
        StitchInitHook(method='xavier')


@pytest.mark.parametrize('num_images', [0, -3])
def test_no_images_is_refused(num_images):
    with pytest.raises(ValueError, match=f'num_images={num_images};.*num_images'):
        StitchInitHook(num_images=num_images)


def test_losses_are_logged_by_cost_group(toy_cfg):
    toy_cfg.train_cfg.max_iters = 5
    runner = Runner.from_cfg(toy_cfg)
    recorder, losses = Recorder(), Losses()
    runner.register_hook(recorder)
    runner.register_hook(losses)
    runner.train()
    costs = cost_table(runner.model)
    # The toy groups: the fast anchor, three groups of four, the slow anchor.
    groups = [(0,), (4, 12, 14, 6), (3, 13, 7, 10), (2, 8, 9, 11), (1,)]
    names = {
        i: f'loss_by_gflops/{sum(costs[j].flops for j in g) / len(g) / 1e9:.3g}'
        for g in groups
        for i in g
    }
    assert losses.told == [
        (names[i], loss, n)
        for n, (i, loss) in enumerate(
            zip(recorder.stitches, losses.losses, strict=True), start=1
        )
    ]


def test_the_histogram_counts_across_a_resume(toy_cfg):
    _, first = train(toy_cfg, **{'train_cfg.max_iters': 3})
    runner, second = train(toy_cfg, **{'train_cfg.max_iters': 8, 'resume': True})
    counted = runner.message_hub.get_info('stitch_histogram')
    assert counted == Counter(first.stitches + second.stitches)
    assert sum(counted.values()) == 8


# --- what is trained


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
    with pytest.raises(ValueError, match='parameters of the model are frozen.*lora'):
        TrainableParamsHook().before_train(runner)
