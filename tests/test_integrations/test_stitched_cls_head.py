import pytest
import torch
from mmengine.model import ExponentialMovingAverage, MMDistributedDataParallel
from mmengine.registry import MODELS
from mmengine.runner import load_checkpoint
from staged_anchors import ENDS, convnext, disturb, levit, mobilenet, resnet, swin
from torch.testing import assert_close

pytest.importorskip('mmpretrain')
timm = pytest.importorskip('timm')

from mmpretrain.models import ImageClassifier  # noqa: E402
from mmpretrain.structures import DataSample  # noqa: E402

from snnet_mm.apis import set_stitch  # noqa: E402
from snnet_mm.esta.saliency import trained_parameters  # noqa: E402
from snnet_mm.integrations.mmpretrain import (  # noqa: E402
    AnchorClassifier,
    StitchedClsHead,
)
from snnet_mm.models.ziplab_checkpoint import convert_ziplab  # noqa: E402

CLASSES = 5


def anchor(width, depth=3, **kwargs):
    arch = dict(embed_dims=width, depth=depth, num_heads=2)
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


def test_a_stitch_trains_the_end_that_it_reaches():
    model = classifier()
    ends = {a: set(end.parameters()) for a, end in enumerate(model.head.anchor_heads)}
    for stitch_id, end in ((0, 0), (2, 1)):
        run = set(trained_parameters(model, model.backbone.space[stitch_id]))
        assert ends[end] <= run
        assert not ends[1 - end] & run


@torch.no_grad()
def test_all_stitches_give_the_logits_of_the_authors(cls_golden):
    m = cls_golden.meta
    anchors = [
        dict(
            type='PlainViT',
            arch=dict(embed_dims=width, depth=depth, num_heads=heads),
            img_size=m['img'],
            patch_size=m['patch'],
        )
        for width, depth, heads in zip(
            m['embed_dims'], m['depths'], m['num_heads'], strict=True
        )
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
        assert_close(
            model(cls_golden.tensors['x']),
            cls_golden.tensors[f'out.{i}'],
            rtol=1e-5,
            atol=1e-5,
            msg=lambda text, i=i: f'stitch {i}: {text}',
        )


@pytest.mark.parametrize('widths', [(8, 12), (8, 8)])
@pytest.mark.parametrize('pooling', ['cls', 'mean'])
@torch.no_grad()
def test_a_stitch_is_classified_by_the_anchor_it_ends_in(randomise, widths, pooling):
    model = randomise(classifier(widths, head=dict(pooling=pooling))).eval()
    images = torch.randn(2, 3, 32, 32)
    for stitch in model.backbone.space:
        set_stitch(model, stitch.id)
        tokens, _ = model.backbone(images)
        token = tokens[:, 0] if pooling == 'cls' else tokens[:, 1:].mean(1)
        end = model.head.anchor_heads[stitch.end_anchor]
        mean, var = token.mean(1, True), token.var(1, False, keepdim=True)
        normed = (token - mean) / (var + 1e-6).sqrt() * end.norm.weight + end.norm.bias
        assert_close(model(images), normed @ end.head.weight.T + end.head.bias)
    assert {s.end_anchor for s in model.backbone.space} == {0, 1}


@torch.no_grad()
def test_a_new_model_runs_the_slow_anchor_and_its_end(randomise):
    model = randomise(classifier((8, 8))).eval()
    images = torch.randn(1, 3, 32, 32)
    fresh = model(images)
    set_stitch(model, 1)
    assert fresh.equal(model(images))


@torch.no_grad()
def test_older_configs_and_checkpoints_name_the_heads_ends(randomise, tmp_path):
    model = randomise(classifier()).eval()
    weights = model.state_dict()
    older = {k.replace('.anchor_heads.', '.ends.'): v for k, v in weights.items()}
    assert len(older.keys() - weights.keys()) == 8
    torch.save(dict(state_dict=older), tmp_path / 'older.pth')
    torch.save(dict(state_dict=weights), tmp_path / 'newer.pth')
    images = torch.randn(1, 3, 32, 32)
    heads = dict(anchor_heads=None, ends=[dict(in_channels=w) for w in (8, 12)])
    for again in (classifier(), classifier(head=heads)):
        again.load_state_dict(older)
        assert again.eval()(images).equal(model(images))
        load_checkpoint(randomise(again), str(tmp_path / 'older.pth'), strict=True)
        assert again(images).equal(model(images))
    wanted = model.head.anchor_heads[1].head.weight
    for file in ('older', 'newer'):
        for name in ('ends', 'anchor_heads'):
            path = str(tmp_path / f'{file}.pth')
            init = dict(type='Pretrained', checkpoint=path, prefix=f'head.{name}.1.')
            one = AnchorClassifier(12, CLASSES, init_cfg=init)
            one.init_weights()
            assert one.head.weight.equal(wanted)


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


def test_only_the_end_of_the_stitch_is_trained():
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


def timm_model(width, depth, **kwargs):
    model = timm.models.vision_transformer.VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=width,
        depth=depth,
        num_heads=2,
        num_classes=CLASSES,
        **kwargs,
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


FAMILIES = {
    'deit3': (dict(no_embed_class=True, init_values=1e-6), {}, {}),
    'deit': (
        {},
        dict(pos_embed_prefix=True, layer_scale_init=None),
        {},
    ),
    'mean': (
        dict(global_pool='avg', class_token=False),
        dict(cls_token=False, layer_scale_init=None),
        dict(pooling='mean'),
    ),
}


@pytest.mark.parametrize('family', FAMILIES)
@torch.no_grad()
def test_weights_of_timm_give_the_logits_of_timm(tmp_path, family):
    theirs, ours, head = FAMILIES[family]
    images = torch.randn(2, 3, 32, 32)
    expected, inits = [], []
    for a, (width, depth) in enumerate([(8, 3), (12, 5)]):
        model = timm_model(width, depth, **theirs)
        expected.append(model(images))
        path = tmp_path / f'{a}.pth'
        torch.save(dict(model=model.state_dict()), path)
        inits.append(dict(type='Pretrained', checkpoint=str(path)))
    anchors = [
        anchor(8, 3, init_cfg=inits[0], **ours),
        anchor(12, 5, init_cfg=inits[1], **ours),
    ]
    ends = [
        dict(in_channels=8, init_cfg=inits[0]),
        dict(in_channels=12, init_cfg=inits[1]),
    ]
    model = classifier(head=dict(anchor_heads=ends, **head), anchors=anchors).eval()
    model.init_weights()
    for a in (0, 1):
        set_stitch(model, a)
        assert_close(model(images), expected[a], rtol=1e-5, atol=1e-5)


STAGES = dict(
    swin=swin, resnet=resnet, convnext=convnext, levit=levit, mobilenet=mobilenet
)


@pytest.mark.parametrize('family', STAGES)
@torch.no_grad()
def test_networks_with_stages_give_the_logits_of_timm(tmp_path, family):
    config = STAGES[family]()
    sized = dict(img_size=64) if family in ('swin', 'levit') else {}
    network = timm.create_model(
        config['model'], num_classes=CLASSES, **config['model_args'], **sized
    )
    disturb(network).eval()
    torch.save(network.state_dict(), tmp_path / 'theirs.pth')
    init = dict(
        init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'theirs.pth'))
    )
    backbone = MODELS.build(config | dict(out='end') | init)
    end = dict(in_channels=backbone.block_dims[-1], **ENDS[family], **init)
    head = dict(type='StitchedClsHead', num_classes=CLASSES, anchor_heads=[end])
    model = ImageClassifier(backbone=backbone, head=head).eval()
    model.init_weights()
    images = torch.randn(2, 3, 64, 64)
    assert_close(model(images), network(images), rtol=1e-5, atol=1e-5)


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
    model.eval()
    assert model(images).shape == (2, CLASSES)
    model.train()
    with torch.no_grad():
        assert model(images).shape == (2, CLASSES)


@torch.no_grad()
def test_ends_of_two_families_each_in_its_way():
    ends = [
        dict(in_channels=20, **ENDS['resnet']),
        dict(in_channels=64, **ENDS['swin']),
    ]
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


@pytest.mark.parametrize(
    'width, classes, words',
    [
        (8, CLASSES + 1, r'head\.weight has shape \(5, 8\).*\(6, 8\).*num_classes'),
        (12, CLASSES, r'norm\.weight has shape \(8,\).*\(12,\).*in_channels'),
    ],
)
def test_classifiers_that_do_not_fit_are_refused(tmp_path, width, classes, words):
    path = tmp_path / 'theirs.pth'
    torch.save(timm_model(8, 3).state_dict(), path)
    end = dict(
        in_channels=width, init_cfg=dict(type='Pretrained', checkpoint=str(path))
    )
    with pytest.raises(ValueError, match=f'theirs.pth.*{words}'):
        StitchedClsHead(classes, [end]).init_weights()


def test_weights_without_a_classifier_are_refused(tmp_path):
    torch.save({'blocks.0.norm1.weight': torch.zeros(2)}, tmp_path / 'theirs.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'theirs.pth'))
    head = StitchedClsHead(3, [dict(in_channels=2, init_cfg=init_cfg)])
    with pytest.raises(ValueError, match='has no norm.weight.*blocks.0.norm1.weight'):
        head.init_weights()


@pytest.mark.parametrize(
    'settings, words',
    [
        (dict(num_classes=0), 'num_classes=0; allowed: 1 or more'),
        (dict(pooling='max'), "pooling='max'; allowed: 'cls', 'mean', 'norm-mean'"),
        (
            dict(anchor_heads=[dict(in_channels=8, norm='GN')]),
            "norm='GN'; allowed: 'LN', 'BN', None",
        ),
        (
            dict(anchor_heads=[dict(in_channels=8, norm='BN', pooling='norm-mean')]),
            "norm='BN'; allowed: 'LN'",
        ),
        (dict(anchor_heads=[]), r'anchor_heads=\(\); allowed: one dict per anchor'),
        (dict(anchor_heads=[None, None]), r'anchor_heads=\[None, None\]'),
    ],
)
def test_settings_that_cannot_be(settings, words):
    with pytest.raises(ValueError, match=words):
        classifier(head=settings)


def run(model):
    return model(torch.randn(1, 3, 32, 32))


def test_heads_that_do_not_match_their_backbone_are_refused():
    swapped = classifier(
        head=dict(anchor_heads=[dict(in_channels=12), dict(in_channels=8)]),
    )
    with pytest.raises(
        ValueError, match=r'in_channels=8; allowed: 12.*anchor_heads\.1'
    ):
        run(swapped)
    three = [dict(in_channels=width) for width in (8, 12, 16)]
    model = classifier(head=dict(anchor_heads=three))
    with pytest.raises(
        ValueError, match='heads for 3 anchors.*the 2 anchors of the backbone'
    ):
        model.head.check_space(model.backbone.space)
    one = classifier(head=dict(anchor_heads=[dict(in_channels=8)]))
    with pytest.raises(
        ValueError,
        match=r'heads for anchors \[0\].*one for anchor 1, in which stitch 1',
    ):
        set_stitch(one, 1)
    with pytest.raises(ValueError, match="maps.*'end': .*backbone.out"):
        run(classifier(out='maps'))
    with pytest.raises(ValueError, match="maps.*'end': .*backbone.out"):
        run(classifier((8,), (3,), out='maps'))
    with pytest.raises(ValueError, match="'cls'; allowed: 'mean'.*pooling"):
        run(classifier((8,), (3,), cls_token=False))


@pytest.fixture
def one_process(tmp_path):
    """A process group of this process alone."""
    torch.distributed.init_process_group(
        'gloo', init_method=f'file://{tmp_path}/store', rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_ends_that_a_stitch_leaves_out_do_not_stop_ddp(one_process):
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


@torch.no_grad()
def test_an_average_of_the_model_follows_its_stitch(randomise):
    average = ExponentialMovingAverage(randomise(classifier((8, 8)))).eval()
    images = torch.randn(1, 3, 32, 32)
    model = average.module
    for stitch in (model.backbone.space[i] for i in (0, 1)):
        set_stitch(average, stitch.id)
        state = model.backbone(images)
        end = model.head.anchor_heads[stitch.end_anchor]
        assert_close(average(images), end.head(end.norm(state.tokens[:, 0])))
