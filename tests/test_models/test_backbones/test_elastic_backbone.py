"""A network stitched to itself, against its blocks and maps composed by hand."""

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from states import states_of

from snnet_mm.costs import cost_table
from snnet_mm.exports import single_stitch
from snnet_mm.models import ElasticBackbone, find_stitched_backbone, set_stitch

VIT = dict(type='PlainViT', img_size=32, patch_size=8)
VIT |= dict(arch=dict(embed_dims=8, depth=6, num_heads=2))
# Kept blocks; with maps of blocks 3 and 5, by hand, each as what follows the embedding.
CHAINS = {
    (0, 1, 2, 3, 5): [[0, 1, 2, 3], [0, 1, 2, 3, '4to5', 5]],
    (0, 1, 5): [[0, 1, '2to4'], [0, 1, '2to4', '4to5', 5]],
    # Two gaps side by side, and both of their maps are read.
    (1,): [['0to1', 1, '2to4'], ['0to1', 1, '2to4', '4to6']],
    (): [['0to4'], ['0to4', '4to6']],
}
SWIN = dict(embed_dims=8, depths=(2, 4), num_heads=(1, 2), strides=(4, 2))
SWIN |= dict(type='mmseg.SwinTransformer', window_size=2, out_indices=(0, 1))


@pytest.fixture
def build(randomise):
    def build(net=VIT, chains=(*CHAINS,), **kwargs):
        kwargs = dict(anchors=[net], chains=chains) | kwargs
        return randomise(ElasticBackbone(**kwargs)).eval()

    return build


def by_hand(net, n, steps, images):
    (anchor,) = net.anchors
    state = anchor.embed(images)
    for step in steps:
        if isinstance(step, str):
            layer = net.stitching_layers[f'skip{n}_{step}']
            state = state._replace(tokens=state.tokens @ layer.weight.T + layer.bias)
        else:
            state = anchor.run_block(state, step)
    return anchor.to_feature_map(state)


@torch.no_grad()
@pytest.mark.parametrize('sharing', [False, True])
def test_chains_are_blocks_and_maps_one_after_the_other(build, sharing):
    net, images = build(out_indices=(3, -1)), torch.randn(2, 3, 32, 40)
    net.anchors[0].out_indices = (3, 5)
    assert net.space.ids == (0, 1, 2, 3, 4)
    wanted = {0: net.anchors[0](images)}
    for n, maps in enumerate(CHAINS.values(), start=1):
        wanted[n] = [by_hand(net, n, steps, images) for steps in maps]
    with net.sharing_prefixes():
        if not sharing:
            net._prefixes = None
        for n, maps in wanted.items():
            net.set_stitch(n)
            for found, by_us in zip(net(images), maps, strict=True):
                assert torch.equal(found, by_us) if n == 0 else found.allclose(by_us)


@torch.no_grad()
@pytest.mark.parametrize(
    'net, chains',
    [(VIT, [(0, 5), (2,)]), (SWIN, [(0, 2, 3), (0, 1, 2, 5), (0, 2)])],
)
def test_stitch_0_is_the_network_to_the_bit_before_and_after_other_stitches(
    build, net, chains
):
    if 'patch_size' not in net:
        pytest.importorskip('mmseg.models')
        net = dict(type='MMSwin', net=net)
    elastic, images = build(net, chains), torch.randn(2, 3, 32, 32)
    (anchor,) = elastic.anchors
    wanted = getattr(anchor, 'net', anchor)(images)
    assert elastic.active_stitch.id == 0
    for n in (0, *elastic.space.ids, 0):
        elastic.set_stitch(n)
        equal = [torch.equal(*p) for p in zip(elastic(images), wanted, strict=True)]
        assert all(equal) if n == 0 else not equal[-1]
    elastic = build(anchor, chains, out='end')
    assert torch.equal(elastic(images).tokens, states_of(anchor, images)[-1].tokens)


def test_blocks_that_lead_into_a_stage_stay(build):
    pytest.importorskip('mmseg.models')
    net = dict(type='MMSwin', net=SWIN)
    assert build(net, [(0, 2)]).space[1].layers == ('skip1_1to2', 'skip1_3to6')
    for chain, fixed in [((0, 1, 3, 4, 5), 2), ((1, 2), 0)]:
        with pytest.raises(ValueError, match=rf'blocks with \[{fixed}\], which change'):
            build(net, [chain])


@torch.no_grad()
def test_costs_in_a_whole_model_are_its_blocks_and_maps(randomise):
    """Stitches of a whole model: switched, counted and exported."""
    pytest.importorskip('mmseg.models')
    head = dict(type='FCNHead', in_channels=8, channels=4, num_classes=3, in_index=1)
    head |= dict(num_convs=1, norm_cfg=None)
    backbone = dict(type='ElasticBackbone', anchors=[VIT], chains=[*CHAINS])
    model = dict(type='EncoderDecoder', backbone=dict(backbone, out_indices=[3, 5]))
    model |= dict(decode_head=head, test_cfg=dict(mode='whole'))
    cfg = Config(dict(model=model, default_scope='mmseg'))
    model = randomise(MODELS.build(dict(cfg.model, _scope_='mmseg'))).eval()
    images, net = torch.randn(1, 3, 32, 32), find_stitched_backbone(model)
    costs = cost_table(model, (32, 32))
    tokens, width = 17, 8
    block = tokens * 12 * width**2 + 2 * tokens**2 * width
    for n, (kept, maps) in enumerate(CHAINS.items(), start=1):
        layers = len({step for steps in maps for step in steps} - {*range(6)})
        saved = (6 - len(kept)) * block - layers * tokens * width**2
        assert costs[n].flops == costs[0].flops - saved
        set_stitch(model, n)
        assert net.active_stitch.id == n
        _, single = single_stitch(cfg, model, n)
        assert {k for k, _ in single.backbone.stitching_layers.items()} == {
            *net.space[n].layers
        }
        assert torch.equal(single._forward(images), model._forward(images))
        assert costs[n].params == sum(p.numel() for p in single.parameters())


SEG_VIT = dict(img_size=32, patch_size=8, embed_dims=8, num_layers=3, num_heads=2)
SEG_VIT |= dict(type='mmseg.VisionTransformer')
ARCH = dict(embed_dims=8, num_layers=3, num_heads=2, feedforward_channels=16)
CLS_VIT = dict(type='mmpretrain.VisionTransformer', arch=ARCH, img_size=32)
CLS_VIT |= dict(patch_size=8)


@pytest.mark.parametrize(
    'family, net, number',
    [
        ('MMSegViT', SEG_VIT, 0),
        ('MMSegViT', SEG_VIT | dict(output_cls_token=True), 1),
        ('MMPretrainViT', CLS_VIT, 1),
        ('MMPretrainViT', CLS_VIT | dict(out_type='raw'), 1),
        ('MMPretrainViT', CLS_VIT | dict(out_type='featmap'), 0),
    ],
)
def test_prefix_tokens_in_outputs_have_their_own_map(build, family, net, number):
    pytest.importorskip('mmpretrain')
    built = build(dict(type=family, net=net), [(0, 2)])
    (layer,) = built.stitching_layers.values()
    assert layer.num_prefix == number
