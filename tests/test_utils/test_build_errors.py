import pytest
from mmengine.registry import DATASETS, HOOKS, MODELS, TASK_UTILS
from mmengine.runner import Runner
from tiny import tiny_config

from snnet_mm.inference.init_model import init_model
from snnet_mm.utils import explain_builds, load_config

SAMPLING = 'default_hooks.stitch_sampling'
VIT = dict(type='PlainViT', img_size=32, patch_size=8)
VIT |= dict(arch=dict(embed_dims=8, depth=2, num_heads=2))


@pytest.mark.parametrize(
    ('name', 'settings', 'words'),
    [
        (
            *('SNNetv2', dict(stiching_layer=dict(rank=2), anchors=[VIT, VIT])),
            r"SNNetv2 cannot be built: .*'stiching_layer'; did you mean "
            r"'stitching_layer'\?.*\(config key: SNNetv2\)",
        ),
        ('SNNetv2', dict(), "SNNetv2 cannot be built: .*missing .*'anchors'"),
        ('PlainViT', dict(archs='s'), "did you mean 'arch'"),
        ('ResourceConstrainedSampler', dict(steps=1e9), r"'step'\?.*ConstrainedSample"),
        # Those of a _base_, merged with ours, or passed on by a part to others.
        ('SimpleFeaturePyramid', dict(num_outs=5), "; _delete_=True beside type='Simp"),
        ('SeededDataset', dict(of='ToyScenes', nums=3), "Toy.*'nums'.*ToyScenes"),
    ],
)
def test_explain_builds_unknown_setting_names_the_nearest(name, settings, words):
    kinds = MODELS, HOOKS, TASK_UTILS, DATASETS
    registry = next(r for r in kinds if name in r.module_dict)
    with pytest.raises(ValueError, match=words), explain_builds():
        registry.build(dict(type=name, **settings))


def test_load_config_pretrained_beside_anchors_is_refused(tmp_path):
    """mmseg would pass it on to the backbone, which has no such setting."""
    text = "model = dict(pretrained='a.pth', backbone=dict(type='SNNetv2', anchors=[]))"
    (tmp_path / 'a.py').write_text(text)
    with pytest.raises(ValueError, match="'a.pth' is .*init_cfg of each.*pretrained"):
        load_config(tmp_path / 'a.py')


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        (dict(in_channels=[8, 8]), r'assert .*isinstance\(in_channels, int\)'),
        (dict(kernel_size=2), 'kernel_size must be 1 or 3'),
    ],
)
def test_explain_builds_assertion_of_mm_names_the_class(changes, words):
    cfg = tiny_config()
    cfg.model.decode_head.update(changes)
    with pytest.raises(ValueError, match=f'SETRUPHead cannot be built: .*{words}'):
        init_model(cfg, None)


@pytest.mark.parametrize('error', [AssertionError(), KeyError('a'), TypeError('argum')])
def test_explain_builds_other_errors_stay_as_they_are(error):
    with pytest.raises(type(error)) as raised, explain_builds():
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ('error', 'kept'),
    [
        (ValueError('no images'), False),
        (ValueError('x=1 is invalid (config key: x)'), True),
        (TypeError('not an iterator'), True),
        (KeyError('key'), True),
    ],
)
def test_explain_builds_errors_inside_a_part(error, kept):
    def part():
        raise error

    with pytest.raises(type(error)) as raised, explain_builds():
        MODELS.build(dict(type=part))
    assert (raised.value is error) is kept
    if not kept:
        assert str(raised.value) == (
            'part cannot be built: no images (config key: part)'
        )


@pytest.mark.parametrize(
    ('key', 'value', 'words'),
    [
        ('model.backbone.type', 'SNNetV2', "type='SNNetV2' is .*mean 'SNNetv2'"),
        ('model.decode_head.type', 'SETRHead', "='SETRHead' is .* in mmseg or"),
        ('default_hooks.logger.type', 'LogerHook', "a hook .*mean 'LoggerHook'"),
        (f'{SAMPLING}.sampler.type', 'UniformSampeler', "mean 'UniformSampler'"),
    ],
)
def test_explain_builds_unknown_type_names_the_nearest(key, value, words, tmp_path):
    cfg = tiny_config()
    cfg.merge_from_dict({key: value, 'work_dir': str(tmp_path)})
    cfg.val_dataloader = cfg.val_evaluator = cfg.val_cfg = None
    with pytest.raises(ValueError, match=words), explain_builds():
        Runner.from_cfg(cfg).train()
