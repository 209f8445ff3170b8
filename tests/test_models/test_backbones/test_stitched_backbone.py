"""Weights know of which stitching space they are, wherever they go."""

from copy import deepcopy

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.runner.checkpoint import load_checkpoint, weights_to_cpu
from safetensors.torch import load_file, save_file
from torch import nn

from snnet_mm.models import convert_ziplab
from snnet_mm.models.backbones.stitched_backbone import SPACE_RECORD
from snnet_mm.stitching import TwoWaySpace, write_space_record
from snnet_mm.utils import load_weights_only

KEY = f'backbone.{SPACE_RECORD}'


class Segmentor(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(2, 2)


@pytest.fixture
def build(build_snnet):
    return lambda **kwargs: Segmentor(build_snnet(**kwargs))


def torch_loads(model, weights, tmp_path):
    model.load_state_dict(weights)


def torch_loads_what_fits(model, weights, tmp_path):
    model.load_state_dict(weights, strict=False)


def mmengine_loads(model, weights, tmp_path):
    torch.save(dict(state_dict=weights_to_cpu(weights)), tmp_path / 'a.pth')
    load_checkpoint(model, str(tmp_path / 'a.pth'))


def weights_only(model, weights, tmp_path):
    torch.save(weights, tmp_path / 'a.pth')
    model.load_state_dict(load_weights_only(tmp_path / 'a.pth'))


def safetensors(model, weights, tmp_path):
    save_file(dict(weights), tmp_path / 'a.safetensors')
    model.load_state_dict(load_file(tmp_path / 'a.safetensors'))


WAYS = [torch_loads, torch_loads_what_fits, mmengine_loads, weights_only, safetensors]


@pytest.mark.parametrize('load', WAYS)
def test_however_weights_are_loaded(build, load, tmp_path):
    model, twin = build(), build()
    weights = model.state_dict()
    text = write_space_record(TwoWaySpace((3, 7)))
    assert bytes(weights[KEY].numpy()).decode() == text
    load(twin, weights, tmp_path)
    for key, value in twin.state_dict().items():
        assert value.equal(weights[key])
    # Every parameter would fit: only the blocks that a stitch runs differ.
    other = write_space_record(TwoWaySpace((3, 7))).replace(
        '[[0,0,1],[1,3,7]]', '[[0,0,1],[1,2,7]]'
    )
    assert other != text
    weights[KEY] = torch.frombuffer(bytearray(other.encode()), dtype=torch.uint8)
    with pytest.raises(
        ValueError, match=r'Stitch 2 is fast\[0:1\] > slow\[2:7\] .* in'
    ):
        load(twin, weights, tmp_path)


@pytest.mark.parametrize('load', WAYS)
def test_weights_from_before_there_were_records(build, load, tmp_path):
    model, twin = build(), build()
    weights = model.state_dict()
    del weights[KEY]
    load(twin, weights, tmp_path)
    for key, value in weights.items():
        assert value.equal(twin.state_dict()[key])


def test_fewer_stitches_have_the_weights_of_all(build):
    model, fewer = build(), build(stitch_ids=[2, 8])
    fewer.load_state_dict(model.state_dict(), strict=False)
    images = torch.randn(1, 3, 32, 32)
    for net in (model, fewer):
        net.eval().backbone.set_stitch(8)
    assert fewer.backbone(images)[0].equal(model.backbone(images)[0])
    with pytest.raises(ValueError, match='Stitch 3 is unknown in the weights'):
        model.load_state_dict(fewer.state_dict(), strict=False)


def test_a_model_average_and_a_copy_have_the_record(build):
    model = build()
    average = ExponentialMovingAverage(model, update_buffers=True)
    average.update_parameters(model)
    average.update_parameters(model)
    state = average.state_dict()
    assert state[f'module.{KEY}'].equal(model.state_dict()[KEY])
    average.load_state_dict(state)
    assert deepcopy(model).state_dict()[KEY].equal(model.state_dict()[KEY])


@pytest.mark.parametrize('record', [torch.zeros(3, dtype=torch.uint8), 'text', None])
def test_a_damaged_record(build, record):
    weights = build().state_dict()
    weights[KEY] = record
    with pytest.raises(ValueError, match='record of the stitching space .* is damaged'):
        build().load_state_dict(weights)


def test_weights_of_the_authors_know_their_space(golden_v1, golden_v2):
    for golden, space in (
        (golden_v2, TwoWaySpace(golden_v2.meta['depths'])),
        (golden_v1, TwoWaySpace(golden_v1.meta['depths'], ('FS',))),
    ):
        converted = convert_ziplab(golden.part('sd.'))
        text = bytes(converted[SPACE_RECORD].numpy()).decode()
        assert text == write_space_record(space)


def test_weights_that_do_not_tell_their_space_get_no_record():
    # Sliding windows may be of any size.
    weights = {
        f'anchors.{a}.blocks.{i}.norm1.weight': torch.zeros(1)
        for a in range(2)
        for i in range(3)
    }
    weights['stitch_layers.0.transform.weight'] = torch.zeros(1)
    assert SPACE_RECORD not in convert_ziplab(weights)
    weights['stitch_layers.1.0.transform.weight'] = torch.zeros(1)
    converted = convert_ziplab(weights)
    text = write_space_record(TwoWaySpace((3, 3)))
    assert bytes(converted[SPACE_RECORD].numpy()).decode() == text
