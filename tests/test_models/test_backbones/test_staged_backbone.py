"""Stitched networks with stages: routes, maps, fits, tools and the published costs."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from families import families
from mmengine.registry import MODELS
from staged_anchors import ENDS, convnext, disturb, levit, resnet, swin
from torch.testing import assert_close

pytest.importorskip('timm')

from states import states_on_route

from snnet_mm.costs import cost_table
from snnet_mm.models import SNNetv1, SNNetv2

PAIRS = dict(
    mixed=[resnet(), swin(12, (2, 2, 3, 2))],
    convnext=[convnext(depths=(1, 1, 2, 1)), convnext((12, 16, 20, 24), (1, 2, 3, 1))],
    levit=[levit(), levit((24, 24, 32))],
    three=[swin(8, (1, 1, 2, 1)), swin(8, (1, 2, 2, 1)), swin(12, (1, 2, 3, 1))],
)
IMAGES = (2, 3, 64, 64)


def build(name, **kwargs):
    return disturb(SNNetv1(PAIRS[name], **kwargs)).eval()


def ends_of(anchor):
    return [stage[-1] for stage in anchor.stages]


@pytest.mark.parametrize('name', PAIRS)
@torch.no_grad()
def test_snnetv1_every_staged_stitch_equals_its_blocks(name):
    net, images = build(name, out='end'), torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        *_, wanted = states_on_route(net, stitch, images).values()
        assert net(images).tokens.equal(wanted.tokens)


# One of every kind of row; slow tests run the others.
QUICK = 'mmseg.VisionTransformer', 'mmdet.PyramidVisionTransformer', 'mmseg.PCPVT'
QUICK += 'mmseg.MSCAN', 'beit_base_patch16_224', 'samvit', 'hiera', 'mvit', 'caformer'


@pytest.mark.parametrize('anchor', [*families(QUICK)])
@torch.no_grad()
def test_snnetv1_of_every_family_equals_its_blocks(anchor):
    """At the fast anchor, at a stitch, and with weights of another network."""
    for package in ('mmdet', 'mmpretrain', 'mmseg'):
        pytest.importorskip(f'{package}.models')
    stages = MODELS.build(deepcopy(anchor)).stages
    several = [s for s, blocks in enumerate(stages) if len(blocks) > 1]
    pair = [deepcopy(anchor), deepcopy(anchor)]
    options = dict(out='end') | (dict(stages=several) if len(stages) > 1 else {})
    net, again = (SNNetv1(deepcopy(pair), **options) for _ in range(2))
    again.eval().load_state_dict(disturb(net.eval()).state_dict())
    images, costs = torch.randn(IMAGES), cost_table(net, IMAGES[2:])
    whole = costs[0].flops
    for stitch in (net.space[0], net.space[net.space.ids[-1]]):
        for each in (net, again):
            each.set_stitch(stitch.id)
        *_, wanted = states_on_route(net, stitch, images).values()
        assert net(images).tokens.equal(wanted.tokens)
        assert again(images).tokens.equal(wanted.tokens)
        assert (costs[stitch.id].flops > whole) == bool(stitch.layers)


@pytest.mark.parametrize('maps_of', ['slowest', 'end'])
@pytest.mark.parametrize('name', ['mixed', 'three'])
@torch.no_grad()
def test_snnetv1_maps_have_widths_and_strides_of_one_anchor(name, maps_of):
    slowest, images = len(PAIRS[name]) - 1, torch.randn(IMAGES)
    ends = ends_of(MODELS.build(PAIRS[name][-1]))
    net = build(name, out_indices=ends, maps_of=maps_of)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        states = states_on_route(net, stitch, images)
        to = slowest if maps_of == 'slowest' else stitch.end_anchor
        for stage, found in enumerate(net(images)):
            block = ends_of(net.anchors[to])[stage]
            state = states.get((to, block))
            if state is None:
                # Of two anchors that ran the stage to its end, the later one.
                ran = enumerate(ends_of(anchor)[stage] for anchor in net.anchors)
                a, end = max((a, end) for a, end in ran if (a, end) in states)
                layer = net.stitching_layers[f'{a}to{to}_{stage}_map']
                state = layer.map_state(states[a, end])
            side = 64 // net.anchors[to].block_strides[block]
            wanted = state.tokens.transpose(1, 2).reshape(2, -1, side, side)
            assert_close(found, wanted, rtol=1e-4, atol=1e-4)


SWINS = [f'swin_{size}_patch4_window7_224' for size in ('tiny', 'small', 'base')]
PUBLISHED = dict(
    swin_ti_s_b=(SWINS, (0, 1, 2)),
    resnet18_50=(['resnet18', 'resnet50'], (1, 2)),
    resnet18_swin_ti=(['resnet18', 'swin_tiny_patch4_window7_224'], (1, 2)),
    levit=(['levit_192', 'levit_256'], (0, 1)),
)
SLOW = 'swin_ti_s_b', 'resnet18_50', 'levit'


@pytest.mark.parametrize(
    'name',
    ['resnet18_swin_ti', *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)],
)
def test_snnetv1_costs_are_those_of_the_authors(name):
    """But for norms and pooling, which the authors count."""
    classifiers = pytest.importorskip('mmpretrain.models')
    from snnet_mm.tasks.mmpretrain import StitchedClsHead

    path = Path(__file__).parents[2] / f'data/imagenet_v1_{name}.json'
    published = json.loads(path.read_text())['stitches']
    networks, stages = PUBLISHED[name]
    with torch.device('meta'):
        configs = [dict(type='TimmStageAnchor', model=n) for n in networks]
        anchors = [MODELS.build(config) for config in configs]
        kinds = [next(k for k in ENDS if n.startswith(k)) for n in networks]
        pairs = zip(anchors, kinds, strict=True)
        ends = [dict(in_channels=a.block_dims[-1], **ENDS[k]) for a, k in pairs]
        model = classifiers.ImageClassifier(
            backbone=SNNetv1(anchors, stages=stages, out='end'),
            head=StitchedClsHead(num_classes=1000, anchor_heads=ends),
        ).eval()
    costs = cost_table(model)
    assert costs.input_size == (224, 224)
    found = {str(row.id): row.flops for row in costs.rows}
    wanted = {i: figures['flops'] for i, figures in published.items()}
    assert found == pytest.approx(wanted, rel=0.01)
    assert all(found[i] <= wanted[i] for i in wanted)


SWIN = [swin(), swin()]
# The third stage of the slower network has blocks of 80 and of 112 channels.
MOBILENET = dict(type='TimmStageAnchor', model='mobilenetv3_large_100')
WIDENING = [resnet(channels=(8, 8, 8, 8)), MOBILENET]
SHARED = dict(share_layers=True, stages=(2,), out='end')


@pytest.mark.parametrize(
    ('kind', 'anchors', 'kwargs', 'message'),
    [
        (SNNetv1, [swin(), levit()], {}, r'\(16, 32, 64.*strides'),
        (SNNetv1, SWIN, dict(stages=(4,)), r'backbone\.stages'),
        (SNNetv1, SWIN, dict(out_indices=(2,)), 'out_indices=2 '),
        (SNNetv1, WIDENING, SHARED, r'backbone\.share_layers'),
        (SNNetv2, SWIN, {}, r'backbone\.type'),
    ],
)
def test_snnetv1_anchors_that_cannot_be_stitched_are_refused(
    kind, anchors, kwargs, message
):
    with pytest.raises(ValueError, match=message):
        kind(anchors, **kwargs)
