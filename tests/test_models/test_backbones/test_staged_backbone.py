"""Stitched networks with stages: routes, maps, fits, tools and the published costs."""

import json
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import ENDS, convnext, disturb, levit, resnet, swin
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.testing import assert_close

pytest.importorskip('timm')

from states import states_of, states_on_route

from snnet_mm.costs import cost_table
from snnet_mm.models import SNNetv1, SNNetv2, set_stitch

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
def test_every_stitch_equals_its_blocks_by_hand(name):
    net, images = build(name, out='end'), torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        *_, wanted = states_on_route(net, stitch, images).values()
        assert_close(net(images).tokens, wanted.tokens, rtol=1e-4, atol=1e-4)
    for a, anchor in enumerate(net.anchors):
        net.set_stitch(a)
        assert net(images).tokens.equal(states_of(anchor, images)[-1].tokens)


@pytest.mark.parametrize('maps_of', ['slowest', 'end'])
@pytest.mark.parametrize('name', ['mixed', 'three'])
@torch.no_grad()
def test_maps_have_the_widths_and_strides_of_one_anchor(name, maps_of):
    slowest = len(PAIRS[name]) - 1
    ends = ends_of(MODELS.build(PAIRS[name][-1]))
    net = build(name, out_indices=ends, maps_of=maps_of)
    images = torch.randn(IMAGES)
    projected = set()
    for stitch in net.space:
        net.set_stitch(stitch.id)
        states, maps = states_on_route(net, stitch, images), net(images)
        to = slowest if maps_of == 'slowest' else stitch.end_anchor
        for stage, found in enumerate(maps):
            block = ends_of(net.anchors[to])[stage]
            state = states.get((to, block))
            if state is None:
                # Of two anchors that ran the stage to its end, the later one.
                ran = enumerate(ends_of(anchor)[stage] for anchor in net.anchors)
                a = max(a for a, end in ran if (a, end) in states)
                layer = net.stitching_layers[f'{a}to{to}_{stage}_map']
                state = states[a, ends_of(net.anchors[a])[stage]]
                state = state._replace(tokens=layer(state.tokens))
                projected.add((a, stage))
            side = 64 // net.anchors[to].block_strides[block]
            wanted = state.tokens.transpose(1, 2).reshape(2, -1, side, side)
            assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    of_maps = {name for name in net.stitching_layers if name.endswith('_map')}
    assert len(of_maps) == len(projected)
    assert maps_of == 'end' or len(projected) == slowest * 4


SWINS = [f'swin_{size}_patch4_window7_224' for size in ('tiny', 'small', 'base')]
PUBLISHED = dict(
    swin_ti_s_b=(SWINS, (0, 1, 2), (4, 6, 23)),
    resnet18_50=(['resnet18', 'resnet50'], (1, 2), range(10)),
    resnet18_swin_ti=(['resnet18', 'swin_tiny_patch4_window7_224'], (1, 2), (2, 7)),
    levit=(['levit_192', 'levit_256'], (0, 1), (0, 4, 7)),
)


def count_norms(model):
    """Returns a list that gets what fvcore counts for each norm that is run."""
    flops = []
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, _BatchNorm)):
            times = 5 if isinstance(module, nn.LayerNorm) else 2
            module.register_forward_pre_hook(
                lambda _, args, times=times: flops.append(times * args[0].numel())
            )
    return flops


SLOW = 'swin_ti_s_b', 'resnet18_50', 'levit'


@pytest.mark.parametrize(
    'name',
    ['resnet18_swin_ti', *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)],
)
def test_costs_are_those_that_the_authors_published(name):
    classifiers = pytest.importorskip('mmpretrain.models')
    from snnet_mm.tasks.classification_parts import StitchedClsHead

    path = Path(__file__).parents[2] / f'data/imagenet_v1_{name}.json'
    published = {int(k): v for k, v in json.loads(path.read_text())['stitches'].items()}
    networks, stages, exact = PUBLISHED[name]
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
    assert set(costs) == set(published)
    for stitch_id, figures in published.items():
        ratio = costs[stitch_id].flops / figures['flops']
        assert ratio == pytest.approx(1, abs=0.01), stitch_id
    # What fvcore counts besides ours makes them equal to the last one.
    norms = count_norms(model)
    for stitch_id in exact:
        set_stitch(model, stitch_id)
        norms.clear()
        with torch.no_grad():
            model(torch.empty(1, 3, 224, 224, device='meta'))
        end = model.backbone.active_stitch.end_anchor
        pooled = 49 * anchors[end].block_dims[-1] if kinds[end] == 'resnet' else 0
        ours = costs[stitch_id].flops + sum(norms) + pooled
        assert ours == published[stitch_id]['flops'], stitch_id
    if name != 'swin_ti_s_b':
        return
    # Their parameters leave out what leads the fast anchor from stage to stage.
    for stitch_id, figures in published.items():
        first, *others = model.backbone.space[stitch_id].segments
        merging = [
            sum(p.numel() for p in block.downsample.parameters())
            for block in anchors[first.anchor].blocks[: first.end if others else 0]
            if isinstance(block, nn.Sequential)
        ]
        assert costs[stitch_id].params == figures['params'] + sum(merging)


SWIN = [swin(), swin()]
# The third stage of the slower network has blocks of 80 and of 112 channels.
WIDENING = [
    resnet(channels=(8, 8, 8, 8)),
    dict(type='TimmStageAnchor', model='mobilenetv3_large_100'),
]
SHARED = dict(share_layers=True, stages=(2,), out='end')


@pytest.mark.parametrize(
    ('kind', 'anchors', 'kwargs', 'message'),
    [
        (SNNetv1, [swin(), levit()], {}, r'\(4, 8, 16, 32\), \(16, 32, 64.*strides'),
        (SNNetv1, SWIN, dict(stages=(4,)), r'stages=\(4,\) is .* 0 to 3'),
        (SNNetv1, SWIN, dict(out_indices=(2,)), 'out_indices=2 is .* 1, 3, 6, 8'),
        (SNNetv1, WIDENING, SHARED, r'\(8, 80\), \(8, 112\).*0to1_9 would join'),
        (SNNetv2, SWIN, {}, "'SNNetv1' for anchors with stages"),
    ],
)
def test_anchors_that_cannot_be_stitched(kind, anchors, kwargs, message):
    with pytest.raises(ValueError, match=message) as error:
        kind(anchors, **kwargs)
    assert 'config key' in str(error.value)
