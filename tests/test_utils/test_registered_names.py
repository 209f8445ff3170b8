import pytest
from mmengine.config import Config
from mmengine.registry import MODELS

from snnet_mm.utils import load_config
from snnet_mm.utils.registered_names import check_named, name_types

# Parts of mmseg's, mmcv's and mmengine's packages; ``{X}`` is a class or its name.
TEXT = """
size = 32
model = dict(
    type={EncoderDecoder},
    backbone=dict(
        type={VisionTransformer}, img_size=size, norm_cfg=dict(type={LayerNorm}),
    ),
    decode_head=dict(type={FCNHead}, norm_cfg=dict(type={BatchNorm2d})),
)
optim_wrapper = dict(
    type={OptimWrapper}, constructor={LearningRateDecayOptimizerConstructor},
    optimizer=dict(type={AdamW}, lr=1e-3),
)
pipeline = [dict(type={LoadAnnotations}), dict(type={PackSegInputs})]
collate_fn = dict(type={pseudo_collate})
post = dict(type={nms}, iou_threshold=0.5)
train_cfg = dict(type={EpochBasedTrainLoop}, max_epochs=1)
"""
IMPORTS = {
    'mmseg.models': 'EncoderDecoder',
    'mmseg.models.backbones': 'VisionTransformer',
    'mmseg.models.decode_heads.fcn_head': 'FCNHead',
    'torch.nn': 'LayerNorm, BatchNorm2d',
    'mmengine.optim': 'OptimWrapper',
    'torch.optim': 'AdamW',
    'mmseg.engine.optimizers': 'LearningRateDecayOptimizerConstructor',
    'mmcv.transforms': 'LoadAnnotations',
    'mmseg.datasets.transforms': 'PackSegInputs',
    'mmengine.dataset': 'pseudo_collate',
    'mmcv.ops': 'nms',
    'mmengine.runner': 'EpochBasedTrainLoop',
}
# Registered otherwise than named, or shadowed by a class of mmseg.
NAMES = dict(
    LayerNorm='LN', BatchNorm2d='BN', LoadAnnotations='mmengine.LoadAnnotations'
)
KINDS = ', '.join(IMPORTS.values()).split(', ')


def write(folder, scope='default_scope = None'):
    """Write a new-style config with a base; return its path and the old-style text."""
    lines = [f'from {module} import {kinds}' for module, kinds in IMPORTS.items()]
    text = TEXT.format(**{kind: kind for kind in KINDS})
    (folder / 'base.py').write_text('\n'.join(lines) + text)
    read = 'from mmengine.config import read_base\nwith read_base():\n'
    (folder / 'new.py').write_text(f'{read}    from .base import *\n{scope}')
    names = {kind: repr(NAMES.get(kind, kind)) for kind in KINDS}
    return folder / 'new.py', f"default_scope = 'mmseg'\n{TEXT.format(**names)}"


@pytest.mark.parametrize(
    'scope', ['default_scope = None', "default_scope = 'mmseg'", '']
)
def test_name_types_new_style_config_equals_old_style(tmp_path, scope):
    path, text = write(tmp_path, scope)
    cfg, old = load_config(path), Config.fromstring(text, '.py')
    assert cfg.to_dict() == old.to_dict()
    assert Config.fromstring(cfg.pretty_text, '.py').to_dict() == old.to_dict()
    assert name_types(old) is old


def test_name_types_import_paths_as_mmengine_dumps(tmp_path):
    path, text = write(tmp_path)
    Config.fromfile(path).dump(tmp_path / 'dumped.py')
    assert "type='mmseg.models.EncoderDecoder'" in (tmp_path / 'dumped.py').read_text()
    old = Config.fromstring(text, '.py')
    assert load_config(tmp_path / 'dumped.py').to_dict() == old.to_dict()


def test_name_types_takes_scope_of_types(tmp_path):
    (tmp_path / 'a.py').write_text("model = dict(type='mmseg.EncoderDecoder')")
    assert load_config(tmp_path / 'a.py').default_scope == 'mmseg'


def test_name_types_unregistered_classes_keep_their_path(tmp_path):
    text = 'from torch.nn import Bilinear\nfrom enum import Enum\n'
    text += 'model = dict(type=Bilinear, in1_features=1)\nx = [dict(type=Enum)]'
    (tmp_path / 'a.py').write_text(text)
    cfg = load_config(tmp_path / 'a.py')
    assert MODELS.get(cfg.model.type).__name__ == 'Bilinear'
    assert cfg.x == [dict(type='enum.Enum')]


def test_check_named_classes_that_no_file_holds(tmp_path):
    text = 'from torch.nn import GELU\nmodel = dict(neck=[dict(act_layer=GELU)])'
    (tmp_path / 'a.py').write_text(text)
    cfg = load_config(tmp_path / 'a.py')
    assert cfg.model.neck[0].act_layer.__name__ == 'GELU'  # trains as with mm
    with pytest.raises(ValueError, match=r'model\.neck\.0\.act_layer'):
        check_named(cfg)
