"""Measured sensitivities, against chains that are fitted and compared by hand."""

import json
from copy import deepcopy
from dataclasses import asdict

import pytest
import torch
from mmengine.registry import MODELS
from small import small

from snnet_mm.elastic import Sensitivities, StepRecord
from snnet_mm.elastic.sensitivity import widths_of
from snnet_mm.models import fit_in_turn

pytest.importorskip('mmseg.models')
VIT = small('vit', final_norm=True)
HEAD = dict(type='FCNHead', in_channels=[8, 8], in_index=[0, 1], channels=16)
HEAD |= dict(num_classes=3, num_convs=1, norm_cfg=None, kernel_size=1)
HEAD |= dict(input_transform='resize_concat')


@pytest.fixture
def build(randomise):
    """Builds a segmentor of given chains, always with the same network."""
    weights = {}

    def build(chains=(), anchor=VIT):
        backbone = dict(type='ElasticBackbone', anchors=[anchor], chains=chains)
        model = dict(type='EncoderDecoder', backbone=dict(backbone, out_indices=[0, 1]))
        model |= dict(decode_head=HEAD, test_cfg=dict(mode='whole'))
        torch.manual_seed(0)
        model = randomise(MODELS.build(dict(deepcopy(model), _scope_='mmseg'))).eval()
        model.decode_head.conv_seg.weight.data.mul_(10)
        if not weights:
            weights.update(model.state_dict())
        own = {k: v for k, v in weights.items() if 'extra_state' not in k}
        model.load_state_dict(own, strict=False)
        return model

    return build


def images():
    """Images that maps are fitted on, and others, in batches of several sizes."""
    generator = torch.Generator().manual_seed(1)
    fitted = torch.randn(24, 3, 32, 32, generator=generator).split(10)
    return fitted, torch.randn(6, 3, 32, 32, generator=generator).split(4)


def divergence_by_hand(model, chain, compared, order):
    """Fit a chain of one change, and compare its predictions with the network's."""
    net, fitted = model.backbone, images()[0]
    for unit_order in net.unit_orders.values():
        unit_order.index.copy_(torch.tensor(order))
    fit_in_turn(net, fitted)
    found = []
    for batch in compared:
        logs = []
        for stitch in (0, 1):
            net.set_stitch(stitch)
            logs.append(model._forward(batch).log_softmax(1))
        p, q = logs
        found.append((p.exp() * (p - q)).sum(1).mean().item())
    return sum(found) / len(found)


@torch.no_grad()
def test_sensitivities_equal_chains_made_by_hand(build):
    fitted, compared = images()
    records = [*Sensitivities(build(), fitted, compared).run()]
    assert [r and [*r.divergence] for r in records] == [[0, 1], [0, 8]] * 2 + [None]
    assert [r and len(r.order) for r in records] == [2, 32, 2, 32, None]
    chains = ['0:1/32', '0:2/8', '1:1/32', '1:2/8']
    chains += ['0:0/32', '0:2/0', '1:0/32', '1:2/0']
    assert max(v for r in records[:4] for v in r.divergence.values()) > 1e-3
    for n, chain in enumerate(chains):
        record = records[n % 4]
        units = 0 if n >= 4 else (1, 8)[n % 2]
        wanted = divergence_by_hand(build([chain]), chain, compared, record.order)
        found = record.divergence[units]
        assert found == pytest.approx(wanted, rel=1e-2, abs=1e-7), chain


def test_sensitivities_resumed_equal_those_from_start(build):
    fitted, compared = images()
    wanted = [*Sensitivities(build(), fitted, compared).run()]
    for known in (1, 4, 5):
        search = Sensitivities(build(), fitted, compared)
        assert [*search.run(wanted[:known])] == wanted[known:]


def test_sensitivities_of_infinite_predictions_raise(build):
    fitted, compared = images()
    compared = [batch.clone() for batch in compared]
    compared[1][0, 0, 0, 0] = torch.inf
    search = Sensitivities(build(), fitted, compared)
    with pytest.raises(ValueError, match='predictions .*key: checkpoint'):
        [*search.run()]
    fitted = [fitted[0] * torch.nan, *fitted[1:]]
    search = Sensitivities(build(), fitted, images()[1])
    with pytest.raises(ValueError, match='finite activations'):
        [*search.run()]


def test_step_record_harm_scales_measured_width():
    errors = {8: 1.0, 6: 2.0, 4: 4.0, 2: 7.0, 1: 13.0, 0: 31.0}
    record = StepRecord([3, 1, *range(2)], errors, {2: 3.0, 0: 5.0})
    wanted = {8: 0, 7: 0.25, 6: 0.5, 5: 1, 4: 1.5, 3: 2.25, 2: 3, 1: 6, 0: 5}
    assert {n: record.harm(n) for n in wanted} == pytest.approx(wanted)
    assert StepRecord.read(json.loads(json.dumps(asdict(record)))) == record
    assert widths_of(6) == [1, 2, 3, 4, 5, 6]
    assert widths_of(1536) == [*range(96, 1537, 96)]
