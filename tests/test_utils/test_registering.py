import inspect
import re
from contextlib import suppress
from importlib import import_module

import pytest
from mmengine import registry as registries
from mmengine.registry import HOOKS, MODELS, TASK_UTILS, Registry
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.inference.init_model import init_model
from snnet_mm.tasks import TASKS
from snnet_mm.utils import suggesting_types

SAMPLING = 'default_hooks.stitch_sampling'
PUSHED = r"pretrained='a.pth'; allowed: .*pretrained=None in model.*: model.pretr"
PARTS = [task.parts for task in TASKS if task.parts]


def of_ours():
    """Registry and class of everything of ours in the root registries."""
    for root in vars(registries).values():
        if isinstance(root, Registry):
            for registry in (root, *root.children.values()):
                for cls in set(registry.module_dict.values()):
                    ours = cls.__module__.startswith('snnet_mm.')
                    if ours and inspect.isclass(cls):
                        yield registry, cls


def test_every_class_of_ours_refuses_settings_that_it_lacks():
    for name in PARTS:
        with suppress(ImportError):  # an environment without the package
            import_module(name)
    parts, passing_on = list(of_ours()), set()
    assert len(parts) > 30
    for registry, cls in parts:
        names = list(inspect.signature(cls).parameters)
        config = dict.fromkeys({*names} - {'args', 'kwargs'}) | dict(type=cls)
        try:
            registry.build(config | dict(no_such_setting=3))
        except Exception as error:
            words = rf'no_such_setting=3; allowed: .*{cls.__name__}.no_such_setting\)'
            if not re.match(words, str(error)):
                passing_on.add(cls.__name__)
    # Those that hand settings on to what they hold, which refuses them.
    others = {'SeededDataset', 'SeededSampler', 'TimmTeacher'}
    assert passing_on == others | {'PartPerAnchor'}


@pytest.mark.parametrize(
    ('name', 'settings', 'words'),
    [
        (
            *('SNNetv2', dict(stiching_layer=dict(rank=2))),
            r"stiching_layer=\{'rank': 2\}; .*did you mean 'stitching_layer'\? "
            r'\(config key: SNNetv2.stiching_layer\)',
        ),
        ('SNNetv2', dict(), "SNNetv2: missing a required argument: 'anchors'"),
        ('PlainViT', dict(archs='s'), "did you mean 'arch'"),
        ('ResourceConstrainedSampler', dict(steps=1e9), r"'step'\?.*Sampler.steps"),
        # Those of a _base_, merged with ours, or passed on by mmsegmentation.
        ('SimpleFeaturePyramid', dict(num_outs=5), "; _delete_=True beside type='Simp"),
        ('SNNetv2', dict(embed_dims=768), "; _delete_=True beside type='SNNetv2' drop"),
        ('UniformSampler', dict(groups=3), '; _delete_=True beside.*Sampler.groups'),
        ('SNNetv2', dict(pretrained='a.pth'), PUSHED),
        ('ElasticBackbone', dict(pretrained='a.pth', anchors=[]), PUSHED),
        ('PlainViT', dict(pretrained='a.pth'), PUSHED),
        ('TimmAnchor', dict(model='vit_tiny_patch16_224', pretrained='a.pth'), PUSHED),
        ('TimmStageAnchor', dict(model='resnet18', pretrained='a.pth'), PUSHED),
    ],
)
def test_the_nearest_setting_is_named(name, settings, words):
    registries = [r for r in (MODELS, HOOKS, TASK_UTILS) if name in r.module_dict]
    with pytest.raises(ValueError, match=words):
        registries[0].build(dict(type=name, **settings))


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        (dict(in_channels=[8, 8]), r'refuses in_channels=\[8, 8\]: isinstance\(in_c'),
        (dict(in_index=(0, 1)), r'refuses in_index=\(0, 1\): .*config key: SETRUP'),
        (dict(kernel_size=2), r'refuses kernel_size=2: kernel_size must be 1 or 3'),
    ],
)
def test_settings_that_an_assertion_of_mm_refuses(changes, words):
    cfg = tiny_config()
    cfg.model.decode_head.update(changes)
    with pytest.raises(ValueError, match=f'SETRUPHead {words}'):
        init_model(cfg, None)


def test_other_assertions_stay_as_they_are():
    with pytest.raises(AssertionError), suggesting_types():
        raise AssertionError


@pytest.mark.parametrize(
    ('key', 'value', 'words'),
    [
        ('model.backbone.type', 'SNNetV2', "type='SNNetV2'; .*mean 'SNNetv2'"),
        ('model.decode_head.type', 'SETRHead', "='SETRHead'; .* in mmseg or"),
        ('default_hooks.logger.type', 'LogerHook', "a hook .*mean 'LoggerHook'"),
        (f'{SAMPLING}.sampler.type', 'UniformSampeler', "mean 'UniformSampler'"),
    ],
)
def test_the_nearest_type_is_named_in_a_training(key, value, words, tmp_path):
    cfg = tiny_config()
    cfg.merge_from_dict({key: value, 'work_dir': str(tmp_path)})
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    if key.startswith('model'):
        with pytest.raises(ValueError, match=words):
            init_model(cfg, None)
    with pytest.raises(ValueError, match=words), suggesting_types():
        Runner.from_cfg(cfg).train()
