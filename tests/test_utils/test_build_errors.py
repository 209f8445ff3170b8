from functools import partial

import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, HOOKS, MODELS
from small import small

from snnet_mm.models.init_model import init_model
from snnet_mm.training import run
from snnet_mm.utils import explain_builds

VIT = small('vit')
PAIR = dict(type='SNNetv2', anchors=[VIT, VIT])


def failing(error):
    raise error


def failing_with(error):
    return dict(type=failing, error=error)


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(PAIR, stiching_layer={}), "mean 'stitching_layer'.*: SNNetv2"),
        (dict(type='SNNetv2'), "SNNetv2.*'anchors'"),
        (dict(PAIR, anchors=[VIT | dict(img_sise=8)] * 2), "mean 'img_size'.*: PlainV"),
        (dict(type='SNNetV2'), "a model .*mean 'SNNetv2'"),
        (dict(num_outs=5), "^{'num_outs': 5} lacks the type of a model "),
        (failing_with(AssertionError()), 'failing cannot .*: raise error'),
        (failing_with(ValueError('none')), 'failing cannot .*: none .*key: failing'),
    ],
)
def test_explain_builds_names_the_part_and_suggests_the_nearest(settings, words):
    with pytest.raises(ValueError, match=words), explain_builds():
        MODELS.build(settings)


@pytest.mark.parametrize(
    'part',
    [
        dict(type='SimpleFeaturePyramid', num_outs=5, start_level=1),
        dict(type='MMSegViT', img_size=32, patch_size=8, num_layers=2),
        VIT | dict(drop_rate=0.1, norm_eval=True, style='pytorch'),
    ],
    ids=lambda part: part['type'],
)
def test_explain_builds_how_to_drop_settings_of_a_base(part, tmp_path):
    """Once, and only in configs that inherit one."""
    base, path = tmp_path / 'base.py', tmp_path / 'own.py'
    base.write_text("part = dict(type='FPN')\n")
    clause = f"_delete_=True beside type='{part['type']}' drops"
    for text in ('', "_base_ = 'base.py'\n"):
        path.write_text(f'{text}part = {part}\n')
        cfg = Config.fromfile(path)
        with pytest.raises(ValueError, match='argument') as raised, explain_builds(cfg):
            MODELS.build(cfg.part)
        assert str(raised.value).count('_delete_') == bool(text)
        assert (clause in str(raised.value)) == bool(text)


def test_explain_builds_setting_passed_on_to_another_part():
    part = dict(type='SeededDataset', of='ToyScenes', nums=3)
    with pytest.raises(ValueError, match="Toy.*'nums'.*ToyScenes"), explain_builds():
        DATASETS.build(part)


def test_explain_builds_hook():
    words = "a hook .*mean 'LoggerHook'"
    with pytest.raises(ValueError, match=words), explain_builds():
        HOOKS.build(dict(type='LogerHook'))


@pytest.mark.parametrize('build', [partial(init_model, checkpoint=None), run.train])
def test_models_that_cannot_be_built_name_the_class(build, tmp_path):
    cfg = small('tiny')
    cfg.model.decode_head.in_channels = [8, 8]
    cfg.work_dir = str(tmp_path)
    with pytest.raises(ValueError, match='SETRUPHead.*in_channels, int'):
        build(cfg)


@pytest.mark.parametrize(
    'error',
    [
        ValueError('x=1 is invalid (config key: x)'),
        TypeError('not an iterator'),
        KeyError('key'),
    ],
)
@pytest.mark.parametrize('call', [failing, lambda e: MODELS.build(failing_with(e))])
def test_explain_builds_other_errors_stay_as_they_are(error, call):
    with pytest.raises(type(error)) as raised, explain_builds():
        call(error)
    assert raised.value is error
