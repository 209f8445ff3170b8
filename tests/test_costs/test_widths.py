"""Stock configs whose necks and heads expect other maps than ours."""

import pytest
from mmengine.registry import MODELS, init_default_scope
from narrowing import narrow
from stock_configs import STAGES, plain_vits, read_own

from snnet_mm.costs import check_auxiliary_heads, cost_table
from snnet_mm.models import set_stitch
from snnet_mm.tasks import import_parts_for
from snnet_mm.utils import model_config

SIZE = 64, 64
PLAIN = dict(backbone=plain_vits(out_indices=(0, 1, 2, 3)))
SETR = 'setr/setr_vit-l_pup_8xb2-160k_ade20k-512x512'
UPERNET = 'vit/vit_deit-s16_mln_upernet_8xb2-160k_ade20k-512x512'
RETINANET = 'retinanet/retinanet_r50_fpn_1x_coco'
MASK_RCNN = 'mask_rcnn/mask-rcnn_r50_fpn_1x_coco'


def checked(package, stock, model, folder, key, value):
    """Build a stock config with ours, change a setting, and run it once."""
    cfg = read_own(package, stock, model, folder / 'own.py')
    narrow(cfg.model)
    cfg.merge_from_dict({key: value}, allow_list_keys=True)
    init_default_scope(package)
    import_parts_for(cfg)
    built = MODELS.build(model_config(cfg))
    cost_table(built, SIZE)
    check_auxiliary_heads(built, SIZE)


@pytest.mark.parametrize(
    ('package', 'stock', 'model', 'key', 'value', 'words'),
    [
        ('mmseg', SETR, PLAIN, 'decode_head.in_channels', 48, '=48 .* 32, '),
        ('mmseg', SETR, PLAIN, 'auxiliary_head.1.in_channels', 48, '=48 .* 32, '),
        ('mmseg', UPERNET, PLAIN, 'auxiliary_head.in_channels', 8, '=8 .* of the neck'),
        ('mmdet', RETINANET, STAGES, 'neck.in_channels', [32, 48], 'of the backbone'),
        ('mmdet', MASK_RCNN, STAGES, 'roi_head.mask_head.in_channels', 48, '48 .* 32,'),
    ],
)
@pytest.mark.filterwarnings('ignore')
def test_widths_misfit_names_width_and_key(
    package, stock, model, key, value, words, tmp_path
):
    """Also of auxiliary heads, which only training runs, and of heads in heads."""
    named = 'model.' + key.replace('.1.', r'\[1\].')
    with pytest.raises(ValueError, match=rf'{words}.*: {named}\)'):
        checked(package, stock, model, tmp_path, f'model.{key}', value)


def test_check_auxiliary_heads_of_each_anchor(tmp_path):
    """The maps of each end anchor have its own width."""
    head = dict(type='FCNHead', channels=8, num_classes=3, num_convs=1)
    parts = [dict(in_channels=16), dict(in_channels=32)]
    own = dict(head, type='PartPerAnchor', parts=[dict(head, **p) for p in parts])
    own = {k: own[k] for k in ('type', 'parts')}
    model = dict(
        type='EncoderDecoder',
        backbone=plain_vits(out_indices=(0, 1, 2, 3), maps_of='end'),
        decode_head=own,
        auxiliary_head=[own],
        test_cfg=dict(mode='whole'),
    )
    init_default_scope('mmseg')
    built = MODELS.build(model)
    check_auxiliary_heads(built, SIZE)
    assert built.backbone.active_stitch.id == 1
    assert built.backbone.eval_maps == (0, 1, 2, 3)
    parts[0]['in_channels'] = 32
    wrong = dict(own, parts=[dict(head, **p) for p in parts])
    built = MODELS.build(dict(model, auxiliary_head=[wrong]))
    set_stitch(built, 0)
    with pytest.raises(ValueError, match='model.auxiliary_head.0.parts.0'):
        check_auxiliary_heads(built, SIZE)
