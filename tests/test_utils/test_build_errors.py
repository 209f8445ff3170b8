import pytest
from mmengine.registry import DATASETS, HOOKS, MODELS
from tiny import tiny_config

from snnet_mm.inference.init_model import init_model
from snnet_mm.utils import explain_builds

VIT = dict(type='PlainViT', img_size=32, patch_size=8)
VIT |= dict(arch=dict(embed_dims=8, depth=2, num_heads=2))


@pytest.mark.parametrize(
    ('registry', 'settings', 'words'),
    [
        (
            MODELS,
            dict(type='SNNetv2', stiching_layer=dict(rank=2), anchors=[VIT, VIT]),
            "mean 'stitching_layer'.*: SNNetv2",
        ),
        (
            MODELS,
            dict(type='SNNetv2'),
            "SNNetv2.*'anchors'",
        ),
        # Those of a _base_, merged with ours, or passed on by a part to others.
        (
            MODELS,
            dict(type='SimpleFeaturePyramid', num_outs=5),
            "_delete_=True.*'Simple",
        ),
        (
            DATASETS,
            dict(type='SeededDataset', of='ToyScenes', nums=3),
            "Toy.*'nums'.*ToyScenes",
        ),
        (MODELS, dict(type='SNNetV2'), "mean 'SNNetv2'"),
        (HOOKS, dict(type='LogerHook'), "a hook .*mean 'LoggerHook'"),
    ],
)
def test_explain_builds_misspelt_name_suggests_the_nearest(registry, settings, words):
    with pytest.raises(ValueError, match=words), explain_builds():
        registry.build(settings)


def test_explain_builds_assertion_of_mm_names_the_class():
    cfg = tiny_config()
    cfg.model.decode_head.in_channels = [8, 8]
    words = 'SETRUPHead.*in_channels, int'
    with pytest.raises(ValueError, match=words):
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
