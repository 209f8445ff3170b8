import copy
import logging
from collections import Counter

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import Runner

from snnet_mm.analysis import cost_table, count_parameters
from snnet_mm.apis import init_model
from snnet_mm.engine import SandwichSampler, StitchInitHook, TrainableParamsHook
from snnet_mm.models import find_stitched_backbone
from snnet_mm.models.stitching_init import fit_stitching_layers
from snnet_mm.utils import isolated_rng, load_weights_only


class Recorder(Hook):
    """Keeps what each iteration trained."""

    priority = 'LOWEST'

    def __init__(self):
        self.stitches, self.logged, self.start = [], [], None

    def before_train(self, runner):
        self.start = {k: v.clone() for k, v in runner.model.state_dict().items()}

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        backbone = find_stitched_backbone(runner.model)
        self.stitches.append(backbone.active_stitch.id)
        scalar = runner.message_hub.get_scalar('train/stitch_gflops')
        self.logged.append(scalar.current())


def train(cfg, **changes):
    recorder = Recorder()
    cfg = cfg.copy()
    cfg.merge_from_dict(changes)
    runner = Runner.from_cfg(cfg)
    runner.register_hook(recorder)
    runner.train()
    return runner, recorder


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
    toy_cfg.custom_hooks[0].method, then = methods
    runner, _ = train(toy_cfg)
    trained = layers_of(runner.model.state_dict())
    toy_cfg.load_from = f'{toy_cfg.work_dir}/iter_2.pth'
    toy_cfg.work_dir += '/next'
    toy_cfg.custom_hooks[0].method = then
    _, recorder = train(toy_cfg)
    for key, value in trained.items():
        assert torch.equal(recorder.start[key], value)


def test_random_layers_stay_as_they_were_built(toy_cfg):
    toy_cfg.custom_hooks[0].method = 'kaiming'
    toy_cfg.custom_hooks.append(dict(type='EMAHook', momentum=0.5))
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
    toy_cfg.custom_hooks[0].method = 'least-squares'
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
    toy_cfg.custom_hooks.append(dict(type='EMAHook', momentum=0.5))
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


class Losses(Hook):
    """Keeps every loss, and what the visualizer was told."""

    def __init__(self):
        self.losses, self.told = [], []

    def before_train(self, runner):
        add_scalar = runner.visualizer.add_scalar

        def spy(name, value, step=0, **kwargs):
            if name.startswith('loss_by_gflops/'):
                self.told.append((name, value, step))
            return add_scalar(name, value, step=step, **kwargs)

        runner.visualizer.add_scalar = spy

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.losses.append(float(outputs['loss']))


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


# --- wrapper models


@pytest.fixture
def sandwich_cfg(toy_cfg):
    """Each iteration trains both anchors and two other stitches."""
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    toy_cfg.custom_hooks[1].sampler = dict(type='SandwichSampler', num_random=2)
    return toy_cfg


def test_every_stitch_of_a_sandwich_is_logged(sandwich_cfg):
    sandwich_cfg.train_cfg.max_iters = 3
    runner = Runner.from_cfg(sandwich_cfg)
    recorder, losses = Recorder(), Losses()
    runner.register_hook(recorder)
    runner.register_hook(losses)
    runner.train()
    costs = cost_table(runner.model)
    sampler = SandwichSampler(
        costs, find_stitched_backbone(runner.model).space, num_random=2, seed=0
    )
    drawn = [sampler.sample(t) for t in range(3)]
    assert runner.message_hub.get_info('stitch_histogram') == Counter(
        i for ids in drawn for i in ids
    )
    gflops = [sum(costs[i].flops for i in ids) / 1e9 for ids in drawn]
    assert recorder.logged == pytest.approx(gflops)
    # Four losses an iteration, which add up to what was trained.
    assert [step for *_, step in losses.told] == [1] * 4 + [2] * 4 + [3] * 4
    sums = [sum(v for _, v, step in losses.told if step == n + 1) for n in range(3)]
    assert sums == pytest.approx(losses.losses)
    slowest, fastest = losses.told[0], losses.told[1]
    assert slowest[0] == f'loss_by_gflops/{costs[1].flops / 1e9:.3g}'
    assert fastest[0] == f'loss_by_gflops/{costs[0].flops / 1e9:.3g}'


def test_checkpoints_of_a_wrapper_are_those_of_its_model(sandwich_cfg):
    trained, _ = train(sandwich_cfg)
    state = trained.model.state_dict()
    plain = sandwich_cfg.copy()
    plain.model = plain.model.model
    plain.custom_hooks[1].sampler = dict(type='UniformSampler')
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


def test_several_stitches_for_a_plain_model_are_refused(toy_cfg):
    toy_cfg.custom_hooks[1].sampler = dict(type='SandwichSampler')
    with pytest.raises(
        ValueError, match="EncoderDecoder trains one.*'SandwichWrapper'"
    ):
        train(toy_cfg)


def test_one_stitch_for_a_sandwich_is_refused(toy_cfg):
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    with pytest.raises(ValueError, match="no sandwich.*type='SandwichSampler'"):
        train(toy_cfg)


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
    toy_cfg.custom_hooks.append(dict(type='EMAHook'))
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
    scalars = runner.message_hub.log_scalars
    parts = [k for k in scalars if k.startswith('train/') and '.' in k]
    assert {k.split('.')[0] for k in parts if 'loss' in k} == {
        'train/slowest',
        'train/fastest',
        'train/stitch0',
        'train/stitch1',
    }
    assert not any('distill' in k for k in parts)


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
