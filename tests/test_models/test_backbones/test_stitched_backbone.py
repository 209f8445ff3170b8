"""The record of the space in weights, and norms of maps."""

import copy

import pytest
import torch
from equality import assert_same
from torch import nn

from snnet_mm.models import SNNetv1
from snnet_mm.models.backbones.stitched_backbone import SPACE_RECORD
from snnet_mm.stitching import TwoWaySpace, write_space_record

KEY = f'backbone.{SPACE_RECORD}'


@pytest.mark.parametrize('strict', [True, False])
def test_stitched_backbone_weights_know_their_space(build_snnet, strict):
    build = lambda: nn.ModuleDict(dict(backbone=build_snnet()))  # noqa: E731
    model = build()
    weights, text = model.state_dict(), write_space_record(TwoWaySpace((3, 7)))
    assert bytes(weights[KEY].numpy()).decode() == text
    del (older := model.state_dict())[KEY]
    for state in (weights, older):
        (twin := build()).load_state_dict(copy.copy(state), strict=strict)
        assert_same(dict(twin.state_dict()), dict(weights))
    # Every parameter would fit: only the blocks that a stitch runs differ.
    other = text.replace('[[0,0,1],[1,3,7]]', '[[0,0,1],[1,2,7]]')
    weights[KEY] = torch.frombuffer(bytearray(other.encode()), dtype=torch.uint8)
    with pytest.raises(ValueError, match='Stitch 2 is '):
        build().load_state_dict(weights, strict=strict)


def swin(depth, stages=(0, 1)):
    sizes = dict(embed_dims=8, depths=(depth, depth), num_heads=(1, 1), strides=(4, 2))
    net = dict(type='mmseg.SwinTransformer', window_size=4, out_indices=stages)
    return dict(type='MMSwin', net=net | sizes)


@torch.no_grad()
def test_stitched_backbone_maps_have_a_norm_for_each():
    pytest.importorskip('mmseg.models')
    both, last = dict(out_indices=(1, 3)), (1,)
    for fast, slow, kwargs, anchor in (
        (swin(1), swin(2), {}, 1),
        (swin(1), swin(2), dict(out_indices=(3, 1)), 1),
        (swin(1), swin(2, last), both, 1),
        (swin(1, last), swin(2), both | dict(maps_of='end'), 0),
    ):
        message = rf'anchor {anchor} .*backbone\.out_indices'
        with pytest.raises(ValueError, match=message):
            SNNetv1([fast, slow], **kwargs)
    net = SNNetv1([swin(1, last), swin(2)], **both).eval()
    images = torch.randn(1, 3, 32, 32)
    wanted, found = net.anchors[1](images), net(images)
    assert all(a.equal(b) for a, b in zip(wanted, found, strict=True))
