import copy

import pytest
import torch
from costs_by_hand import (
    DEPTHS,
    LAYERS,
    SIZE,
    cost_by_hand,
)
from mm_backbones import CONVNEXT, MIT, SWIN
from small import ToyClassifier
from tables import counts
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.costs import cost_table, count_parameters
from snnet_mm.models import ElasticBackbone

FULL, LORA = LAYERS


@pytest.mark.parametrize(
    ('layer', 'outputs', 'maps'),
    [
        (FULL, dict(out_indices=range(7), anchor=dict(lora=dict(rank=3))), range(7)),
        (LORA, dict(out_indices=(0, 3, 6), eval_maps=(1,)), [3]),
        (LORA, dict(out_indices=range(7), maps_of='end'), range(7)),
        (FULL, dict(out='end'), []),
    ],
)
def test_cost_table_in_closed_form(build_snnet, layer, outputs, maps):
    net = build_snnet(DEPTHS, stitching_layer=layer, **outputs)
    with torch.inference_mode('out' in outputs):
        table = cost_table(net, SIZE)
    assert table.input_size == SIZE
    assert list(table) == list(net.space.ids)
    for stitch in net.space:
        wanted = cost_by_hand(stitch, maps, net.maps_of == 'end')
        assert counts(table[stitch.id]) == wanted, stitch


def size(*modules):
    return sum(p.numel() for m in modules for p in m.parameters())


WINDOWS = dict(
    cls_token=False, window_size=3, global_blocks=(1,), decomposed_rel_pos=True
)


@pytest.mark.parametrize('anchor', [dict(), WINDOWS])
@torch.no_grad()
def test_cost_table_equals_real_forwards(build_snnet, anchor):
    settings = dict(out_indices=(1, 3, 5), eval_maps=(0, 2), anchor=anchor)
    net = build_snnet((2, 3, 6), (8, 12, 16), stitching_layer=LORA, **settings)
    table = cost_table(net, (40, 24))
    shipped = copy.deepcopy(net).to('meta').eval()
    for name, module in shipped.stitching_layers.items():
        shipped.stitching_layers[name] = module.merged()
    images = torch.empty(1, 3, 40, 24, device='meta')
    for stitch in net.space:
        shipped.set_stitch(stitch.id)
        with FlopCounterMode(display=False) as counter:
            shipped(images)
        assert table[stitch.id].flops == counter.get_total_flops() // 2, stitch


def test_count_parameters_of_stitched_model_by_part(build_snnet):
    """Anchors of 3 blocks x 8 and 7 x 12 channels, trained by updates of rank 2."""
    net = build_snnet(anchor=dict(lora=dict(rank=2)))
    # A is rank x C, B is 3C x rank for qkv and C x rank for proj.
    lora = 2 * (1 + 3 + 1 + 1) * (3 * 8 + 7 * 12)
    # Three layers to the slow anchor, two back: A, B and the bias of every one.
    trained = 5 * 2 * (8 + 12) + 3 * 12 + 2 * 8
    assert count_parameters(nn.DataParallel(ToyClassifier(net))) == {
        'backbone.anchors': (lora, size(net.anchors)),
        'backbone.stitching_layers': (trained, trained + 5 * 8 * 12),
        'head': (12 * 5 + 5, 12 * 5 + 5),
    }
    assert list(count_parameters(net)) == ['anchors', 'stitching_layers']


def attention(tokens, dim, keys):
    """FLOPs of a channel of heads: queries, keys and values, scores, projection."""
    return 2 * tokens * dim + 2 * keys * dim + 2 * tokens * keys


VIT = dict(embed_dims=8, depth=2, num_heads=2)
# Config, plan; FLOPs and parameters saved at 64x64, with one head of 4 or 16 channels
# less, and with so many neurons less.
NARROW = dict(
    PlainViT=(
        dict(type='PlainViT', arch=VIT, patch_size=8, layer_scale_init=None),
        '0:1/10 1:0/0',
        4 * attention(65, 8, 65) + 22 * 2 * 65 * 8 + 11 * 65 * 8**2 + 2 * 65**2 * 8,
        4 * (3 * 9 + 8) + 22 * (9 + 8) + 12 * 8**2 + 13 * 8 - 9 * 8,
    ),
    # Stage 2 is one window of 4x4 tokens, whose table has 7x7 rows.
    Swin=(
        dict(type='MMSwin', net=dict(SWIN, type='mmseg.SwinTransformer')),
        '1:1/8 4:1/50',
        24 * 2 * 256 * 8 + 16 * attention(16, 32, 16) + 78 * 2 * 16 * 32,
        24 * (9 + 8) + 16 * (3 * 33 + 32) + 7 * 7 + 78 * (33 + 32),
    ),
    # Keys of block 2 are reduced to 2x2; a 3x3 convolution follows fc1.
    MiT=(
        dict(type='MMMiT', net=dict(MIT, type='mmseg.MixVisionTransformer')),
        '2:1/10 5:1/32',
        4 * (attention(64, 8, 4) + attention(4, 8, 4)) + 22 * 64 * (2 * 8 + 9),
        2 * 4 * (3 * 9 + 8) + 22 * (9 + 10 + 8),
    ),
    # The scale of 8 channels is part of the fitted projection.
    ConvNeXt=(
        dict(type='MMConvNeXt', net=dict(CONVNEXT, type='mmpretrain.ConvNeXt')),
        '1:10',
        22 * 2 * 64 * 8,
        22 * (9 + 8) + 8,
    ),
)


@pytest.mark.parametrize('name', NARROW)
def test_cost_table_narrow_chains_in_closed_form(name):
    pytest.importorskip('mmpretrain.models')
    pytest.importorskip('mmseg.models')
    config, plan, flops, params = NARROW[name]
    table = cost_table(ElasticBackbone([copy.deepcopy(config)], [plan]), (64, 64))
    assert table[0].flops - table[1].flops == flops
    assert table[0].params - table[1].params == params
