"""Anchors' weights, the active stitch, and the record of the space in weights."""

import copy

import pytest
import torch
from equality import assert_same
from safetensors.torch import load_file, save_file
from torch import nn

from snnet_mm.models import SNNetv1, SNNetv2
from snnet_mm.models.backbones.stitched_backbone import SPACE_RECORD
from snnet_mm.stitching import TwoWaySpace, write_space_record

KEY = f'backbone.{SPACE_RECORD}'
LAYER = dict(type='LoRAStitchingLayer', rank=2)


def test_each_anchor_loads_weights_of_its_own(build_vit, tmp_path):
    fast, trained = build_vit(8, 3), build_vit(12, 3)
    wanted = [copy.deepcopy(dict(fast.state_dict())), dict(trained.state_dict())]
    weights = {f'backbone.{k}': v for k, v in trained.state_dict().items()}
    torch.save(dict(state_dict=weights), path := str(tmp_path / 'trained.pth'))
    loading = dict(type='Pretrained', checkpoint=path, prefix='backbone.')
    net = SNNetv2([fast, build_vit(12, 3, init_cfg=loading)], LAYER)
    net.init_weights()
    assert_same([dict(anchor.state_dict()) for anchor in net.anchors], wanted)


@pytest.fixture
def build(build_snnet):
    """Builds a segmentor."""

    def build(**kwargs):
        parts = dict(backbone=build_snnet(**kwargs), head=nn.Linear(2, 2))
        return nn.ModuleDict(parts)

    return build


def through_safetensors(model, weights, path):
    save_file(dict(weights), path)
    model.load_state_dict(load_file(path))


@pytest.mark.parametrize(
    'load',
    [
        lambda model, weights, _: model.load_state_dict(weights),
        lambda model, weights, _: model.load_state_dict(weights, strict=False),
        through_safetensors,
    ],
)
def test_weights_know_their_space_however_they_are_loaded(build, load, tmp_path):
    model, path = build(), tmp_path / 'a.pth'
    weights, text = model.state_dict(), write_space_record(TwoWaySpace((3, 7)))
    assert bytes(weights[KEY].numpy()).decode() == text
    del (older := model.state_dict())[KEY]
    for state in (weights, older):
        load(twin := build(), copy.copy(state), path)
        assert_same(dict(twin.state_dict()), dict(weights))
    # Every parameter would fit: only the blocks that a stitch runs differ.
    other = text.replace('[[0,0,1],[1,3,7]]', '[[0,0,1],[1,2,7]]')
    weights[KEY] = torch.frombuffer(bytearray(other.encode()), dtype=torch.uint8)
    with pytest.raises(ValueError, match='Stitch 2 is .* in the weights'):
        load(build(), weights, path)


def test_fewer_stitches_have_the_weights_of_all(build):
    model, fewer = build(), build(stitch_ids=[2, 8])
    fewer.load_state_dict(model.state_dict(), strict=False)
    images = torch.randn(1, 3, 32, 32)
    for net in (model, fewer):
        net.eval()['backbone'].set_stitch(8)
    pair = (net['backbone'](images)[0] for net in (model, fewer))
    assert torch.equal(*pair)
    with pytest.raises(ValueError, match='Stitch 3 is unknown in the weights'):
        model.load_state_dict(fewer.state_dict(), strict=False)


def swin(depth, stages=(0, 1)):
    sizes = dict(embed_dims=8, depths=(depth, depth), num_heads=(1, 1), strides=(4, 2))
    net = dict(type='mmseg.SwinTransformer', window_size=4, out_indices=stages)
    return dict(type='MMSwin', net=net | sizes)


@torch.no_grad()
def test_maps_are_those_of_a_network_with_a_norm_for_each():
    pytest.importorskip('mmseg.models')
    message = r'out_indices=\({}\) is .*\({}\), .* net.out_indices of anchor {}'
    message += r' \(config key: backbone.out_indices\)'
    both, last = dict(out_indices=(1, 3)), (1,)
    for fast, slow, kwargs, *named in (
        (swin(1), swin(2), {}, '3,', '1, 3', 1),
        (swin(1), swin(2), dict(out_indices=(3, 1)), '3, 1', '1, 3', 1),
        (swin(1), swin(2, last), both, '1, 3', '3,', 1),
        (swin(1, last), swin(2), both | dict(maps_of='end'), '0, 1', '1,', 0),
    ):
        with pytest.raises(ValueError, match=message.format(*named)):
            SNNetv1([fast, slow], **kwargs)
    net = SNNetv1([swin(1, last), swin(2)], **both).eval()
    images = torch.randn(1, 3, 32, 32)
    wanted, found = net.anchors[1](images), net(images)
    assert all(a.equal(b) for a, b in zip(wanted, found, strict=True))
