import pytest
import torch
from mmpretrain.models import ImageClassifier
from mmpretrain.structures import DataSample
from staged_anchors import ENDS, levit, resnet, swin
from states import states_of
from torch.testing import assert_close
from ziplab_names import convert_ziplab

import snnet_mm.tasks.mmpretrain  # noqa: F401
from snnet_mm.models import SNNetv1, set_stitch

CLASSES = 5
WIDTHS = 8, 12, 16


def anchor(width, depth=3, num_heads=2, **kwargs):
    arch = dict(embed_dims=width, depth=depth, num_heads=num_heads)
    return dict(type='PlainViT', arch=arch, img_size=32, patch_size=8) | kwargs


def classifier(dims=(8, 12), head=None, **backbone):
    """A stitched classifier of anchors of 3 and 5 blocks."""
    anchors = [anchor(*pair) for pair in zip(dims, (3, 5), strict=True)]
    layer = dict(type='LoRAStitchingLayer', rank=2)
    defaults = dict(anchors=anchors, stitching_layer=layer, out='end')
    ends = [dict(in_channels=n) for n in dims]
    base = dict(type='StitchedClsHead', num_classes=CLASSES, anchor_heads=ends)
    backbone = dict(type='SNNetv2', **defaults) | backbone
    return ImageClassifier(backbone=backbone, head=base | (head or {}))


@torch.no_grad()
def test_stitched_cls_head_snnetv2_logits_of_the_authors(cls_golden):
    m = cls_golden.meta
    archs = zip(m['embed_dims'], m['depths'], m['num_heads'], strict=True)
    images = dict(img_size=m['img'], patch_size=m['patch'])
    model = classifier(
        m['embed_dims'],
        head=dict(num_classes=m['num_classes']),
        anchors=[anchor(*arch, **images) for arch in archs],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=m['lora_r']),
    ).eval()
    theirs = cls_golden.part('sd.')
    ours = convert_ziplab(theirs)
    # Whether layers are fitted, and the record of the space.
    assert len(ours) == len(theirs) + 2
    model.load_state_dict(ours)
    assert model.backbone.stitching_initialized
    assert len(m['stitch_ids']) == 134
    for i in m['stitch_ids']:
        set_stitch(model, i)
        found, wanted = model(cls_golden.tensors['x']), cls_golden.tensors[f'out.{i}']
        assert_close(found, wanted, rtol=1e-5, atol=1e-5)


HEADS, DEEP = (1, 2, 4, 8), (2, 2, 6, 2)
NARROW = dict(img_size=64, model_args=dict(channels=(8, 12, 16, 20)))
RESNETS = [
    dict(type='TimmStageAnchor', model=model, **NARROW)
    for model in ('resnet18', 'resnet50')
]
# Anchors, and how each of them classifies.
V1 = dict(
    deit=(
        [anchor(w, 4, layer_scale_init=None, pos_embed_prefix=True) for w in WIDTHS],
        [{}] * 3,
    ),
    swin=(
        [swin(4, (2,) * 4, HEADS), swin(4, DEEP, HEADS), swin(8, DEEP, HEADS)],
        [ENDS['swin']] * 3,
    ),
    resnet=(RESNETS, [ENDS['resnet']] * 2),
    resnet_swin=([RESNETS[0], swin(8, DEEP, HEADS)], [ENDS['resnet'], ENDS['swin']]),
    levit=(
        [levit(widths, (4,) * 3) for widths in ((16, 24, 32), (24, 24, 32))],
        [ENDS['levit']] * 2,
    ),
)


def classifier_v1(name):
    """Our network of golden tensors of SN-Netv1, with random weights."""
    configs, heads = V1[name]
    stages = dict(share_layers=True, stages=(1, 2) if 'resnet' in name else None)
    stages = {} if name == 'deit' else stages
    backbone = SNNetv1(configs, out='end', **stages)
    ends = [
        dict(in_channels=a.block_dims[-1], **head)
        for a, head in zip(backbone.anchors, heads, strict=True)
    ]
    options = dict(num_classes=CLASSES, norm_stitches=name != 'deit')
    return ImageClassifier(
        backbone=backbone,
        head=dict(type='StitchedClsHead', anchor_heads=ends, **options),
    ).eval()


@torch.no_grad()
def test_stitched_cls_head_snnetv1_logits_of_the_authors(cls_v1_golden):
    model = classifier_v1(cls_v1_golden.meta['name'].removeprefix('cls_v1_'))
    ours = convert_ziplab(cls_v1_golden.part('sd.'))
    model.load_state_dict(ours)  # strict
    assert model.backbone.stitching_initialized
    assert 'backbone._extra_state' in ours
    ids = cls_v1_golden.meta['stitch_ids']
    assert list(model.backbone.space.ids) == ids
    for i in ids:
        set_stitch(model, i)
        found = model(cls_v1_golden.tensors['x'])
        assert_close(found, cls_v1_golden.tensors[f'out.{i}'], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_stitched_cls_head_of_slowest_serves_all_stitches(randomise):
    """SN-Netv1 as the authors classify: the slow anchor and an FS per fast block."""
    heads = [None, dict(in_channels=12)]
    model = classifier(
        head=dict(of_slowest=True, anchor_heads=heads),
        kinds=('FS',), out='maps', with_cls=True,
    )  # fmt: skip
    model = randomise(model).eval()
    net, classify = model.backbone, model.head.anchor_heads[1]
    fast, slow = net.anchors
    model.head.check_space(net.space)
    images, config = torch.randn(2, 3, 32, 32), dict(anchor_heads=heads)
    # Stitch 0 projects all of the fast anchor.
    state = net.stitching_layers['0to1_2'].map_state(states_of(fast, images)[-1])
    for stitch_id, end in ((1, states_of(slow, images)[-1]), (0, state)):
        set_stitch(model, stitch_id)
        assert_close(model(images), classify(end))
        stitch = net.space[stitch_id]
        assert not list(model.head.idle_parameters(stitch))
        assert model.head.config_of_stitch(config, stitch) == config


def test_stitched_cls_head_trains_head_of_stitch_alone():
    model = classifier()
    samples = [DataSample().set_gt_label(i) for i in (1, 4)]
    for stitch_id, end in ((0, 0), (1, 1), (2, 1), (5, 0)):
        set_stitch(model, stitch_id)
        model.zero_grad()
        model(torch.randn(2, 3, 32, 32), samples, mode='loss')['loss'].backward()
        assert model.backbone.space[stitch_id].end_anchor == end
        named = model.head.named_parameters()
        assert {n.split('.')[1] for n, p in named if p.grad is not None} == {str(end)}
        idle = {*model.head.idle_parameters(model.backbone.space[stitch_id])}
        assert idle == {*model.head.anchor_heads[1 - end].parameters()}


def test_stitched_cls_head_frozen_trains_stitching_layers_alone():
    """A stitch without them has nothing to train."""
    ends = [dict(in_channels=20, **ENDS['resnet']), dict(in_channels=64, norm='BN')]
    head = dict(num_classes=CLASSES, anchor_heads=ends, pooling='mean', frozen=True)
    backbone = dict(
        type='BridgedBackbone',
        anchors=[resnet(), swin(downsampling_blocks=True)],
        stages=[(0, 1)],
        stitching_layer=dict(type='LinearAdapter'),
        out='end',
    )
    head['type'] = 'StitchedClsHead'
    model = ImageClassifier(backbone=backbone, head=head).train()
    statistics = model.head.anchor_heads[1].norm.running_mean.clone()
    images = torch.randn(2, 3, 64, 64)
    model(images).sum().backward()
    assert all(p.grad is None for p in model.head.parameters())
    assert model.head.anchor_heads[1].norm.running_mean.equal(statistics)
    trained = (k for k, p in model.named_parameters() if p.requires_grad)
    assert {k.split('.')[1] for k in trained} == {'stitching_layers'}
    set_stitch(model, 0)
    with pytest.raises(ValueError, match=r'sampler\.anchors'):
        model(images)
    assert model.eval()(images).shape == (2, CLASSES)


@torch.no_grad()
def test_stitched_cls_head_without_norm_of_stitches(randomise):
    """They are exported and trained without."""
    model = randomise(classifier(head=dict(norm_stitches=False))).eval()
    images, head = torch.randn(2, 3, 32, 32), model.head
    for stitch in (model.backbone.space[i] for i in (0, 1, 2)):
        set_stitch(model, stitch.id)
        last = head.anchor_heads[stitch.end_anchor]
        token = model.backbone(images).tokens[:, 0]
        joined = stitch.kind != 'anchor'
        wanted = last.head(token if joined else last.norm(token))
        assert_close(model(images), wanted)
        idle = {id(p) for p in head.idle_parameters(stitch)}
        assert joined == ({id(p) for p in last.norm.parameters()} <= idle)
        heads = dict(anchor_heads=[dict(in_channels=n) for n in (8, 12)])
        config = head.config_of_stitch(heads | dict(norm_stitches=False), stitch)
        alone = [None, None]
        alone[stitch.end_anchor] = heads['anchor_heads'][stitch.end_anchor]
        if joined:
            alone[stitch.end_anchor] = dict(alone[stitch.end_anchor], norm=None)
        assert config == dict(anchor_heads=alone)
    with pytest.raises(ValueError, match='head.norm_stitches'):
        classifier(head=dict(norm_stitches=False, pooling='norm-mean'))
