import pytest
import torch
from mmengine.model import MMDistributedDataParallel
from mmengine.runner import load_checkpoint
from staged_anchors import ENDS, disturb, resnet, swin
from torch.testing import assert_close

pytest.importorskip('mmpretrain')
timm = pytest.importorskip('timm')

from mmpretrain.models import ImageClassifier  # noqa: E402
from mmpretrain.structures import DataSample  # noqa: E402

import snnet_mm.integrations.mmpretrain  # noqa: E402, F401
from snnet_mm.apis import set_stitch  # noqa: E402
from snnet_mm.models import convert_ziplab  # noqa: E402

CLASSES = 5


def anchor(width, depth=3, num_heads=2, **kwargs):
    arch = dict(embed_dims=width, depth=depth, num_heads=num_heads)
    return dict(type='PlainViT', arch=arch, img_size=32, patch_size=8) | kwargs


def classifier(widths=(8, 12), depths=(3, 5), head=None, **backbone):
    """A stitched classifier, or one anchor alone for a single width."""
    anchors = [anchor(*pair) for pair in zip(widths, depths, strict=False)]
    if len(widths) == 1:
        backbone = anchors[0] | dict(out='end') | backbone
    else:
        layer = dict(type='LoRAStitchingLayer', rank=2)
        defaults = dict(anchors=anchors, stitching_layer=layer, out='end')
        backbone = dict(type='SNNetv2', **defaults) | backbone
    ends = [dict(in_channels=width) for width in widths]
    head = dict(type='StitchedClsHead', num_classes=CLASSES, anchor_heads=ends) | (
        head or {}
    )
    return ImageClassifier(backbone=backbone, head=head)


@torch.no_grad()
def test_all_stitches_give_the_logits_of_the_authors(cls_golden):
    m = cls_golden.meta
    sizes = zip(m['embed_dims'], m['depths'], m['num_heads'], strict=True)
    anchors = [
        anchor(d, n, h, img_size=m['img'], patch_size=m['patch']) for d, n, h in sizes
    ]
    model = classifier(
        m['embed_dims'],
        head=dict(num_classes=m['num_classes']),
        anchors=anchors,
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


@pytest.mark.parametrize('widths', [(8, 12), (8, 8)])
@pytest.mark.parametrize('pooling', ['cls', 'mean'])
@torch.no_grad()
def test_a_stitch_is_classified_by_the_anchor_it_ends_in(randomise, widths, pooling):
    model = randomise(classifier(widths, head=dict(pooling=pooling))).eval()
    images = torch.randn(2, 3, 32, 32)
    fresh = model(images)
    set_stitch(model, 1)
    assert fresh.equal(model(images))
    for stitch in model.backbone.space:
        set_stitch(model, stitch.id)
        tokens, _ = model.backbone(images)
        token = tokens[:, 0] if pooling == 'cls' else tokens[:, 1:].mean(1)
        end = model.head.anchor_heads[stitch.end_anchor]
        mean, var = token.mean(1, True), token.var(1, False, keepdim=True)
        normed = (token - mean) / (var + 1e-6).sqrt() * end.norm.weight + end.norm.bias
        assert_close(model(images), normed @ end.head.weight.T + end.head.bias)


@torch.no_grad()
def test_configs_and_checkpoints_from_before_the_rename(randomise, tmp_path):
    model = randomise(classifier()).eval()
    weights = model.state_dict()
    older = {k.replace('.anchor_heads.', '.ends.'): v for k, v in weights.items()}
    assert len(older.keys() - weights.keys()) == 8
    torch.save(dict(state_dict=older), tmp_path / 'older.pth')
    images = torch.randn(1, 3, 32, 32)
    heads = dict(anchor_heads=None, ends=[dict(in_channels=w) for w in (8, 12)])
    for again in (classifier(), classifier(head=heads)):
        again.load_state_dict(older)
        assert again.eval()(images).equal(model(images))
        load_checkpoint(randomise(again), str(tmp_path / 'older.pth'), strict=True)
        assert again(images).equal(model(images))


@torch.no_grad()
def test_an_anchor_alone_is_that_of_the_stitched_model(randomise):
    stitched = randomise(classifier()).eval()
    images = torch.randn(2, 3, 32, 32)
    for a, (width, depth) in enumerate([(8, 3), (12, 5)]):
        alone = classifier((width,), (depth,)).eval()
        alone.backbone.load_state_dict(stitched.backbone.anchors[a].state_dict())
        alone.head.anchor_heads[0].load_state_dict(
            stitched.head.anchor_heads[a].state_dict()
        )
        set_stitch(stitched, a)
        assert alone(images).equal(stitched(images))


def test_only_the_head_of_the_stitch_is_trained():
    model = classifier()
    samples = [DataSample().set_gt_label(i) for i in (1, 4)]
    for stitch_id, end in ((0, 0), (1, 1), (2, 1), (5, 0)):
        set_stitch(model, stitch_id)
        model.zero_grad()
        model(torch.randn(2, 3, 32, 32), samples, mode='loss')['loss'].backward()
        assert model.backbone.space[stitch_id].end_anchor == end
        trained = {
            name.split('.')[1]
            for name, p in model.head.named_parameters()
            if p.grad is not None
        }
        assert trained == {str(end)}
        idle = {*model.head.idle_parameters(model.backbone.space[stitch_id])}
        assert idle == {*model.head.anchor_heads[1 - end].parameters()}


def test_a_frozen_head_and_a_stitch_with_nothing_to_train():
    ends = [dict(in_channels=20, **ENDS['resnet']), dict(in_channels=64, norm='BN')]
    head = dict(num_classes=CLASSES, anchor_heads=ends, pooling='mean', frozen=True)
    backbone = dict(
        type='BridgedBackbone',
        anchors=[resnet(), swin()],
        stages=[(0, 1)],
        stitching_layer=dict(type='LinearAdapter'),
        out='end',
    )
    model = ImageClassifier(
        backbone=backbone, head=dict(type='StitchedClsHead', **head)
    ).train()
    statistics = model.head.anchor_heads[1].norm.running_mean.clone()
    images = torch.randn(2, 3, 64, 64)
    model(images).sum().backward()
    assert all(p.grad is None for p in model.head.parameters())
    assert model.head.anchor_heads[1].norm.running_mean.equal(statistics)
    trained = {k for k, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(k.startswith('backbone.stitching') for k in trained)
    set_stitch(model, 0)
    with pytest.raises(ValueError, match='everything is frozen.*sampler.anchors'):
        model(images)
    assert model.eval()(images).shape == (2, CLASSES)


@torch.no_grad()
def test_heads_of_two_families():
    sizes = dict(resnet=20, swin=64)
    ends = [dict(in_channels=n, **ENDS[family]) for family, n in sizes.items()]
    head = dict(type='StitchedClsHead', num_classes=CLASSES, anchor_heads=ends)
    backbone = dict(type='SNNetv1', anchors=[resnet(), swin()], out='end')
    model = disturb(ImageClassifier(backbone=backbone, head=head)).eval()
    images = torch.randn(2, 3, 64, 64)
    for stitch in model.backbone.space:
        set_stitch(model, stitch.id)
        tokens = model.backbone(images).tokens
        end = model.head.anchor_heads[stitch.end_anchor]
        if stitch.end_anchor:
            tokens = end.norm(tokens)
        wanted = tokens.mean(1) @ end.head.weight.T + end.head.bias
        assert_close(model(images), wanted)
    assert len(model.backbone.space) == 2 + 1 + 1 + 2


def run(model):
    return model(torch.randn(1, 3, 32, 32))


def widths(*numbers):
    return dict(anchor_heads=[dict(in_channels=n) for n in numbers])


def check_space(*numbers):
    model = classifier(head=widths(*numbers))
    model.head.check_space(model.backbone.space)


@pytest.mark.parametrize(
    'call, words',
    [
        (lambda: check_space(8, 12, 16), 'heads for 3 anchors.*2 anchors of the back'),
        (lambda: classifier(head=dict(num_classes=0)), 'num_classes=0; allowed: 1'),
        (lambda: classifier(head=dict(anchor_heads=[None])), 'one dict per anchor'),
        (lambda: run(classifier(head=widths(12, 8))), r'=8; allowed: 12.*_heads\.1'),
        (lambda: set_stitch(classifier(head=widths(8)), 1), r'\[0\].*for anchor 1'),
        (lambda: run(classifier(out='maps')), "maps.*'end': .*backbone.out"),
        (lambda: run(classifier((8,), (3,), cls_token=False)), "'cls'; allowed: 'mean"),
    ],
)
def test_bad_settings(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.fixture
def process_group(tmp_path):
    store = f'file://{tmp_path}/store'
    torch.distributed.init_process_group('gloo', store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_heads_that_a_stitch_leaves_out_do_not_stop_ddp(process_group):
    model = classifier()
    ddp = MMDistributedDataParallel(model, find_unused_parameters=True)
    samples = [DataSample().set_gt_label(i) for i in (1, 4)]
    for stitch_id in (1, 0, 7, 0):
        set_stitch(ddp, stitch_id)
        model.zero_grad()
        ddp(torch.randn(2, 3, 32, 32), samples, mode='loss')['loss'].backward()
        grads = [end.head.bias.grad for end in model.head.anchor_heads]
        moved = [g is not None and bool(g.any()) for g in grads]
        end = model.backbone.space[stitch_id].end_anchor
        assert moved == [end == 0, end == 1]
