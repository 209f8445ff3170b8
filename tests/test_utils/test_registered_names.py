import pytest
from mmengine.config import Config
from mmengine.registry import MODELS

from snnet_mm.utils import load_config
from snnet_mm.utils.registered_names import check_named, name_types

BASE = """
from mmseg.models import EncoderDecoder
from mmseg.models.backbones import VisionTransformer
from torch.nn import GELU, LayerNorm
size = 32
model = dict(
    type=EncoderDecoder,
    backbone=dict(
        type=VisionTransformer, img_size=size, norm_cfg=dict(type=LayerNorm),
    ),
    test_cfg=dict(mode='whole'),
)
"""
FILE = """
from enum import Enum
from mmcv.ops import nms
from mmcv.transforms import LoadAnnotations
from mmengine.config import read_base
from mmengine.dataset import pseudo_collate
from mmseg.datasets.transforms import PackSegInputs
from torch.optim import AdamW
with read_base():
    from .base import *
pipeline = [dict(type=LoadAnnotations), dict(type=PackSegInputs)]
optim_wrapper = dict(optimizer=dict(type=AdamW, lr=1e-3))
collate_fn = dict(type=pseudo_collate)
post = dict(type=nms, kind=dict(type=Enum))
"""
NAMED = dict(
    size=32,
    model=dict(
        type='mmseg.EncoderDecoder',
        backbone=dict(
            type='mmseg.VisionTransformer',
            img_size=32,
            norm_cfg=dict(type='mmengine.LN'),
        ),
        test_cfg=dict(mode='whole'),
    ),
    pipeline=[dict(type='mmengine.LoadAnnotations'), dict(type='mmseg.PackSegInputs')],
    optim_wrapper=dict(optimizer=dict(type='mmengine.AdamW', lr=1e-3)),
    collate_fn=dict(type='mmengine.pseudo_collate'),
    post=dict(type='nms', kind=dict(type='enum.Enum')),
    default_scope='mmseg',
)


@pytest.mark.parametrize('scope', ['default_scope = None', "default_scope = 'mmseg'"])
def test_types_of_a_new_style_config_are_names_with_scopes(tmp_path, scope):
    (tmp_path / 'base.py').write_text(BASE)
    (tmp_path / 'new.py').write_text(FILE + scope)
    cfg = load_config(tmp_path / 'new.py')
    assert cfg.to_dict() == NAMED
    assert MODELS.get(cfg.model.backbone.type).__name__ == 'VisionTransformer'
    assert Config.fromstring(cfg.pretty_text, '.py').to_dict() == NAMED
    check_named(cfg)
    assert name_types(cfg) is cfg


def test_the_scope_of_types_with_a_scope(tmp_path):
    text = "model = dict(type='AWrapper', model=dict(type='mmseg.EncoderDecoder'))"
    (tmp_path / 'a.py').write_text(text)
    assert load_config(tmp_path / 'a.py').default_scope == 'mmseg'


def test_classes_that_no_file_can_hold(tmp_path):
    text = 'from torch.nn import GELU\nmodel = dict(neck=[dict(act_layer=GELU)])'
    (tmp_path / 'a.py').write_text(text)
    cfg = load_config(tmp_path / 'a.py')
    assert cfg.model.neck[0].act_layer.__name__ == 'GELU'  # trains as with mm
    with pytest.raises(ValueError, match=': model.neck.0.act_layer'):
        check_named(cfg)
