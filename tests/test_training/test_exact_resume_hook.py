"""Interrupted training goes on as if nothing had happened."""

import pytest
from mmengine.runner import Runner
from small import small
from training_twice import train_twice

from snnet_mm.costs import cost_table
from snnet_mm.esta import importance_results
from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import StitchTable
from snnet_mm.training import ExactResumeHook, ResourceConstrainedSampler
from snnet_mm.utils import guard_checkpoints, load_weights_only

PIPELINE = [
    dict(type='RandomResize', scale=(32, 32), ratio_range=(1.0, 1.5)),
    dict(type='RandomCrop', crop_size=(32, 32)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs'),
]


@pytest.fixture
def cfg(tmp_path):
    """Everything random that training has: augmentation, drop path, BN, stitches."""
    cfg = small('tiny', tmp_path, val=False)
    cfg.train_dataloader.dataset.pipeline = PIPELINE
    for anchor, depth in zip(cfg.model.backbone.anchors, (3, 6), strict=True):
        anchor.arch.depth, anchor.drop_path_rate = depth, 0.3
    cfg.param_scheduler = [
        dict(type='LinearLR', start_factor=0.1, end=2, by_epoch=False),
        dict(type='CosineAnnealingLR', begin=2, end=8, by_epoch=False),
    ]
    return cfg


@pytest.mark.slow
def test_exact_resume_hook_sandwiches_and_scores_go_on(cfg):
    cfg.model.backbone.plugins = dict(stitch_biases=dict(type='StitchBiases'))
    cfg.model = dict(type='SandwichWrapper', model=cfg.model)
    cfg.default_hooks.stitch_sampling.sampler = dict(
        type='SandwichSampler',
        num_random=2,
        sampler=dict(type='ImportanceSampler', warm_up=1, num_groups=2),
    )
    cfg.param_scheduler = [
        dict(type=name, begin=0, end=8, by_epoch=False)
        for name in ('GroupOneCycleLR', 'OneCycleMomentum')
    ]
    folder, recorder, _ = train_twice(cfg, 2, 4)
    assert len(set(recorder.stitches)) > 1

    # Scores are in the checkpoint, and beside it in the form of results.
    saved = load_weights_only(folder / 'iter_4.pth')['message_hub']['runtime_info']
    scores = saved['stitch_scores']['scores']
    assert saved['stitch_scores']['num_scored_steps'] == 4
    assert set(scores) == set(saved['stitch_histogram'])
    assert all(q > 0 for q in scores.values())
    model = Runner.from_cfg(cfg).model
    space = find_stitched_backbone(model).space
    results = StitchTable.read(folder / 'stitch_scores.json', space)
    assert results == importance_results(cost_table(model), scores, 2)


@pytest.mark.slow
def test_exact_resume_hook_accumulated_gradients_are_of_one_stitch(cfg):
    cfg.optim_wrapper.accumulative_counts = 3
    _, recorder, rest = train_twice(cfg, 6, 9)
    costs = cost_table(Runner.from_cfg(cfg).model)
    step = cfg.default_hooks.stitch_sampling.sampler.step
    sampler = ResourceConstrainedSampler(costs, step=step, seed=0)
    drawn = [sampler.sample(i)[0] for i in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    assert recorder.stitches == [i for i in drawn for _ in range(3)]
    assert rest.stitches == [drawn[2]] * 3


@pytest.mark.parametrize('num_workers', [0, pytest.param(2, marks=pytest.mark.slow)])
@guard_checkpoints()  # as the tools read them
def test_exact_resume_hook_six_iterations_are_three_twice(cfg, num_workers):
    """With any number of workers before and after, and with a model average."""
    cfg.custom_hooks = [dict(type='EMAHook', momentum=0.3)]
    cfg.custom_hooks += [dict(type='StitchStatisticsHook', num_images=4)]
    cfg.train_cfg.val_interval = 6
    cfg.val_dataloader, cfg.val_evaluator = cfg.test_dataloader, cfg.test_evaluator
    cfg.val_cfg = dict(type='StitchValLoop', stitches='anchors')
    cfg.train_dataloader.num_workers = 2 - num_workers
    workers = dict(num_workers=num_workers, persistent_workers=num_workers > 0)
    train_twice(cfg, 3, 6, train_dataloader=workers)


def test_exact_resume_hook_warns_of_missing_seeds(cfg, caplog):
    cfg.randomness.seed = None
    cfg.train_dataloader.sampler.type = 'InfiniteSampler'
    runner = Runner.from_cfg(cfg)
    runner.logger.setLevel('WARNING')
    runner.logger.addHandler(caplog.handler)
    (hook,) = (h for h in runner.hooks if isinstance(h, ExactResumeHook))
    hook.before_train(runner)
    seed, sampler = caplog.messages
    assert 'config key: randomness.seed' in seed
    assert 'InfiniteSampler seeds no augmentation, SeededSampler does' in sampler
