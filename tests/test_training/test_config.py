import pytest
from mmengine.config import Config
from mmengine.hooks import CheckpointHook
from mmengine.optim import AmpOptimWrapper
from small import small

from snnet_mm.training.config import (
    check_hooks,
    decay_anchors,
    layer_decay,
    make_safe,
    set_augmentation,
    set_length,
    set_resume,
    set_visualization,
    train_in_half_precision,
)

AMP = dict(type=AmpOptimWrapper, loss_scale=512.0)
BY_KIND = 'LearningRateDecayOptimizerConstructor'
BY_LAYER = 'LayerDecayOptimizerConstructor'
VIT, STITCHED = dict(type='VisionTransformer'), dict(type='SNNetv2', anchors=[])
FLIPS = [dict(type='RandomFlip', prob=prob) for prob in (1.0, 0.0)]


def linear(end, begin=0, **more):
    return dict(type='LinearLR', begin=begin, end=end, **more)


def cosine(begin, end, **more):
    return dict(type='CosineAnnealingLR', begin=begin, end=end, **more)


@pytest.mark.parametrize(
    'schedules, new, expected',
    [
        # 300 are the old length.
        ([linear(25), cosine(25, 300)], 60, [linear(5), cosine(5, 60)]),
        ([linear(25), cosine(25, 300)], 700, [linear(59), cosine(59, 700)]),
        ([linear(25), cosine(25, 300)], 10, [cosine(1, 10)]),
        (
            [linear(5, convert_to_iter_based=True), cosine(5, 300, T_max=295)],
            10,
            [linear(1, convert_to_iter_based=True), cosine(1, 10, T_max=9)],
        ),
        ([cosine(0, 299), linear(300, 299)], 30, [cosine(0, 30)]),
        ([dict(milestones=[200, 275])], 3, [dict(milestones=[2, 2])]),
        (dict(step_size=100, begin=20), 30, dict(step_size=10, begin=2)),
        (
            dict(a=cosine(2, 300), b=cosine(0, 300)),
            30,
            dict(a=cosine(1, 30), b=cosine(0, 30)),
        ),
        (None, 30, None),
    ],
)
def test_set_length_scales_schedule(schedules, new, expected):
    for unit in ('iters', 'epochs'):
        loop = {f'max_{unit}': 300, 'val_interval': 50}
        cfg = Config(dict(train_cfg=loop, param_scheduler=schedules))
        set_length(cfg, **{unit: new})
        assert (cfg.param_scheduler or None) == expected
        # Scaled where it is longer, capped where it is shorter.
        interval = {700: 117, 60: 50}.get(new, new)
        assert cfg.train_cfg == {f'max_{unit}': new, 'val_interval': interval}
        other = dict(iters='epochs', epochs='iters')[unit]
        with pytest.raises(ValueError, match=f'{other}=3 .*--{other}'):
            set_length(cfg, **{other: 3})
        with pytest.raises(ValueError, match=f'{unit}=0 is .*--{unit}'):
            set_length(cfg, **{unit: 0})


def test_set_length_scales_warm_ups():
    sampler, loss = dict(warm_up=100), dict(warm_up_iters=20)
    cfg = Config(
        dict(default_hooks=dict(a=dict(sampler=sampler)), model=[dict(b=loss)])
    )
    cfg.train_cfg = dict(max_iters=300)
    set_length(cfg, iters=30)
    assert cfg.default_hooks.a.sampler == dict(warm_up=10)
    assert cfg.model[0].b == dict(warm_up_iters=2)
    set_length(cfg)
    assert cfg.train_cfg == dict(max_iters=30)


def test_make_safe_replaces_stock_hooks():
    sampler = dict(type='InfiniteSampler', shuffle=True)
    loader = dict(dataset=dict(type='ToyScenes'), sampler=sampler)
    checkpoint = dict(type='CheckpointHook', by_epoch=False, max_keep_ckpts=2)
    hooks = dict(checkpoint=dict(checkpoint, interval=1))
    cfg = Config(dict(model={}, train_dataloader=loader, default_hooks=hooks))
    assert make_safe(cfg) == [
        'StitchCheckpointHook', 'ExactResumeHook', 'SeededDataset and SeededSampler',
        'randomness.seed=0', 'TrainingCheckHook', 'LossCheckHook',
    ]  # fmt: skip
    wanted = dict(type='StitchCheckpointHook', by_epoch=False, interval=1)
    assert cfg.default_hooks.checkpoint == dict(wanted, max_keep_ckpts=2)
    loader = cfg.train_dataloader
    assert loader.sampler == sampler | dict(type='SeededSampler', of='InfiniteSampler')
    assert loader.dataset == dict(type='SeededDataset', of='ToyScenes')
    before = cfg.to_dict()
    assert make_safe(cfg) == []
    assert cfg.to_dict() == before
    assert make_safe(small('tiny')) == []


@pytest.mark.parametrize(
    'hooks, checkpoint',
    [
        (None, dict(type='StitchCheckpointHook', interval=1)),
        (
            dict(checkpoint=dict(type=CheckpointHook, save_best='auto')),
            dict(type='StitchCheckpointHook', interval=-1, save_best='auto'),
        ),
        (dict(checkpoint=None), None),
        (dict(checkpoint=dict(type='MyHook')), dict(type='MyHook')),
    ],
)
def test_make_safe_keeps_settings_of_checkpoints(hooks, checkpoint):
    loader = dict(dataset=dict(type='A'), sampler=dict(type='MySampler'))
    cfg = dict(model={}, train_dataloader=loader, default_hooks=hooks)
    cfg |= dict(custom_hooks=[dict(type='EMAHook')], randomness=dict(seed=3))
    cfg = Config(cfg)
    make_safe(cfg)
    assert cfg.default_hooks.get('checkpoint') == checkpoint
    added = {'exact_resume', 'training_check', 'loss_check'}
    assert cfg.default_hooks.keys() == added | (
        {'checkpoint'} & cfg.default_hooks.keys()
    )
    assert cfg.train_dataloader == loader
    assert cfg.randomness.seed == 3


@pytest.mark.parametrize(
    ('asked', 'resume', 'note', 'options', 'resumes', 'keeps'),
    [
        (None, True, True, {}, True, True),  # as the config says
        (False, True, True, {}, False, True),
        (True, False, False, {}, False, True),  # begins with the weights
        (True, False, True, {}, True, False),  # goes on from its own
        (True, False, True, dict(load_from='a.pth'), True, True),
    ],
)
def test_set_resume_of_a_config_with_load_from(
    tmp_path, asked, resume, note, options, resumes, keeps
):
    """Fine-tuning resumes its own checkpoint, unless another is named to be resumed."""
    if note:
        (tmp_path / 'last_checkpoint').write_text('iter_1.pth')
    cfg = Config(dict(work_dir=str(tmp_path), load_from='a.pth', resume=resume))
    set_resume(cfg, asked, options)
    assert (cfg.resume, cfg.load_from) == (resumes, 'a.pth' if keeps else None)


@pytest.mark.parametrize(
    ('scope', 'wrapper', 'expected'),
    [
        ('mmseg', AMP, dict(type='BF16OptimWrapper')),
        ('mmdet', AMP, dict(type='OptimWrapper')),
        ('mmseg', dict(type='OptimWrapper'), dict(type='OptimWrapper')),
        ('mmseg', None, None),
    ],
)
def test_train_in_half_precision_without_amp_on_cpu(scope, wrapper, expected):
    """mmengine's wrapper raises an AssertionError there."""
    cfg = Config(dict(default_scope=scope, optim_wrapper=wrapper))
    train_in_half_precision(cfg, asked=False)
    assert cfg.optim_wrapper == expected


def test_train_in_half_precision_detectors_on_cpu_are_refused():
    cfg = Config(dict(default_scope='mmdet', optim_wrapper=dict(type='OptimWrapper')))
    with pytest.raises(ValueError, match='--amp'):
        train_in_half_precision(cfg)


@pytest.mark.parametrize(
    ('scope', 'test_cfg', 'loop', 'hook'),
    [
        ('mmseg', dict(type='StitchTestLoop'), dict(show_dir='s'), {}),
        ('mmdet', dict(type='TestLoop'), {}, dict(draw=True)),
        # As in mmpretrain's own configs.
        ('mmpretrain', {}, {}, dict(enable=True, out_dir='s')),
    ],
)
def test_set_visualization_draws_as_the_package_does(scope, test_cfg, loop, hook):
    parts = dict(test_cfg=test_cfg, default_hooks=dict(visualization=dict(type='B')))
    cfg = Config(dict(default_scope=scope, visualizer=dict(), **parts))
    set_visualization(cfg, 's')
    assert cfg.test_cfg == test_cfg | loop
    assert cfg.default_hooks.visualization == dict(type='B', **hook)
    assert cfg.visualizer.get('save_dir') == ('s' if scope == 'mmdet' else None)
    cfg.default_hooks = dict()
    if not loop:
        with pytest.raises(ValueError, match='default_hooks.visualization'):
            set_visualization(cfg, 's')


@pytest.mark.parametrize(
    'constructor, paramwise, wanted',
    [
        (BY_LAYER, dict(layer_decay_rate=0.7), {}),
        (BY_KIND, dict(decay_rate=0.7, decay_type='layer_wise', num_layers=4), {}),
        (
            BY_KIND,
            dict(decay_rate=0.7, decay_type='stage_wise', num_layers=4),
            dict(num_layers=4),
        ),
    ],
)
def test_layer_decay_of_mm_becomes_that_of_anchors(constructor, paramwise, wanted):
    found = layer_decay(dict(constructor=constructor, paramwise_cfg=paramwise))
    rates = dict(wanted, _delete_=True, decay_rates=0.7)
    own = dict(constructor='AnchorLayerDecayConstructor', paramwise_cfg=rates)
    assert found == own
    assert layer_decay(dict(paramwise_cfg=dict(custom_keys={}))) == {}


@pytest.mark.parametrize(
    ('backbone', 'constructor', 'replaced'),
    [
        (STITCHED, BY_KIND, True),
        (STITCHED, BY_LAYER, True),
        (dict(type='PlainViT'), BY_KIND, True),
        (dict(type='TimmAnchor'), BY_KIND, True),
        (VIT, BY_KIND, False),
        # mmpretrain's own decay asks the backbone for the depth of a layer.
        (STITCHED, 'LearningRateDecayOptimWrapperConstructor', False),
    ],
)
def test_decay_anchors_where_mm_knows_no_layers(backbone, constructor, replaced):
    wrapper = dict(constructor=constructor, paramwise_cfg=dict(decay_rate=0.7))
    model = dict(type='SandwichWrapper', model=dict(backbone=backbone))
    cfg = Config(dict(model=model, optim_wrapper=wrapper))
    assert decay_anchors(cfg) is replaced
    own = dict(
        constructor='AnchorLayerDecayConstructor', paramwise_cfg=dict(decay_rates=0.7)
    )
    assert cfg.optim_wrapper == (own if replaced else wrapper)


@pytest.mark.parametrize(
    ('hooks', 'words'),
    [
        (dict(chekpoint=dict(interval=1)), "'chekpoint' .*did you mean 'checkpoint'"),
        (dict(loger=None), "'loger' .*did you mean 'logger'"),
        (dict(mine=dict(type='A'), mene=dict(x=1)), "'mene' .*did you mean 'mine'"),
        (dict(checkpoint=dict(interval=1)), r'\.checkpoint\)$'),
        (dict(logger=None, mine=CheckpointHook(1), timer=dict(type='A')), None),
    ],
)
def test_check_hooks_misspelt_names(hooks, words):
    cfg = Config(dict(default_hooks=hooks))
    if words is None:
        check_hooks(cfg)
    else:
        with pytest.raises(ValueError, match=words):
            check_hooks(cfg)


@pytest.mark.parametrize(
    ('scope', 'model', 'pack', 'meta'),
    [
        ('mmpretrain', 'AverageClsScoreTTA', dict(type='PackInputs'), {}),
        (
            'mmdet',
            'DetTTAModel',
            dict(type='PackDetInputs', meta_keys=('img_id',)),
            dict(meta_keys=('img_id', 'flip', 'flip_direction')),
        ),
    ],
)
def test_set_augmentation_flips_by_default(scope, model, pack, meta):
    """As the tools of mmdet and mmpretrain do; those of mmseg need a setting."""
    pipeline = [dict(type='LoadImageFromFile'), pack]
    data = dict(type='RepeatDataset', dataset=dict(pipeline=pipeline))
    parts = dict(model=dict(type='A'), test_dataloader=dict(dataset=data))
    cfg = Config(dict(parts, default_scope=scope))
    set_augmentation(cfg)
    assert (cfg.model.type, cfg.model.module) == (model, dict(type='A'))
    step = dict(type='TestTimeAug', transforms=[FLIPS, [pack | meta]])
    assert cfg.test_dataloader.dataset.dataset.pipeline == [pipeline[0], step]
    with pytest.raises(ValueError, match='tta_model'):
        set_augmentation(Config(dict(parts, default_scope='mmseg')))
