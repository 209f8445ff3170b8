"""What every anchor promises, for one network of every family."""

from copy import deepcopy

import mm_backbones
import pytest
import timm
import torch
from mmengine.registry import MODELS
from staged_anchors import (
    caformer,
    convnext,
    disturb,
    hiera,
    levit,
    mobilenet,
    mvit,
    pvt,
    resnet,
    samvit,
    swin,
)
from states import states_of
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import BlockwiseAnchor, TokenState
from snnet_mm.anchors.blockwise import MIRRORED
from snnet_mm.anchors.branches import owner_of_forward

PLAIN = dict(
    **dict(type='PlainViT', arch=dict(embed_dims=8, depth=5, num_heads=2)),
    **dict(img_size=64, num_registers=1, rel_pos_bias=True, final_norm=True),
    **dict(out_indices=(0, 4), drop_path_rate=0.4),
)
TIMM = dict(
    **dict(type='TimmAnchor', model='vit_small_patch14_reg4_dinov2', img_size=56),
    model_args=dict(embed_dim=16, depth=4, num_heads=2),
    out_indices=(0, 3),
)
CHAIN = dict(
    **dict(type='ChainAnchor', net=PLAIN, out_indices=(1, 4)),
    chain='0:1/0 1:0/0 2:0/9 4:2/0',
)


def of_mm(family, backbone, settings):
    return dict(type=family, net=dict(settings, type=backbone))


BEIT = dict(model='beit_base_patch16_224', img_size=64)
BEIT |= dict(model_args=dict(embed_dim=16, depth=3, num_heads=2))
ONE_SIZE = 'levit', 'hiera', 'mvit', 'beit'


# Config, and levels for layer-wise decay by parts of names.
FAMILIES = dict(
    plain=(
        PLAIN,
        {'pos_embed': 0, 'blocks.1.ls1': 2, 'blocks.4.': 5, 'norm.weight': 6},
    ),
    timm=(TIMM, {'_token': 0, 'patch_embed': 0, 'blocks.1.ls1': 2, 'vit.norm.': 5}),
    swin=(
        swin(out_indices=(1, -1)),
        {'stem': 0, 'blocks.2.downsample': 3, 'blocks.3.': 4},
    ),
    resnet=(resnet(), {'stem.conv1': 0, 'blocks.4.downsample': 5}),
    convnext=(convnext(), {'stem': 0, 'blocks.1.downsample': 2}),
    levit=(levit(), {'stem': 0, 'blocks.5.': 6}),
    mobilenet=(mobilenet(), {'stem': 0, 'blocks.3.': 4}),
    samvit=(samvit(out_indices=(0, 2)), {'pos_embed': 0, 'blocks.2.': 3}),
    hiera=(hiera(out_indices=(2, -1)), {'stem.block.pos_embed': 0, 'blocks.1.': 2}),
    pvt=(pvt(), {'stem': 0, 'blocks.1.downsample': 2, 'blocks.2.norm': 3}),
    mvit=(mvit(), {'stem': 0, 'blocks.1.block.shortcut_proj': 2}),
    caformer=(caformer(), {'stem': 0, 'blocks.3.downsample': 4}),
    beit=(
        dict(BEIT, type='TimmAnchor', out_indices=(0, 2)),
        {'cls_token': 0, 'blocks.1.attn': 2},
    ),
    chain=(CHAIN, {'pos_embed': 0, 'net.blocks.2.': 3, 'layers.3': 2}),
    mm_vit=(
        of_mm('MMSegViT', 'mmseg.VisionTransformer', mm_backbones.PLAIN),
        {'cls_token': 0, 'layers.2.ln1': 3},
    ),
    mm_swin=(
        of_mm('MMSwin', 'mmseg.SwinTransformer', mm_backbones.SWIN),
        {'stages.1.blocks.0': 3, 'stages.0.downsample': 3, 'net.norm0': 9},
    ),
    mm_resnet=(
        of_mm('MMResNet', 'mmseg.ResNet', mm_backbones.DEEP | dict(depth=18)),
        {'net.conv1': 0, 'layer2.0': 3},
    ),
    mm_convnext=(
        of_mm('MMConvNeXt', 'mmpretrain.ConvNeXt', mm_backbones.CONVNEXT),
        {'stages.1.0': 2, 'downsample_layers.1': 2},
    ),
    mm_mit=(
        of_mm('MMMiT', 'mmseg.MixVisionTransformer', mm_backbones.MIT),
        {'layers.1.0': 3, 'layers.0.2': 2, 'layers.2.1.1': 5, 'layers.3.2': 6},
    ),
    mm_van=(
        of_mm('MMVAN', 'mmpretrain.VAN', dict(arch=mm_backbones.VAN)),
        {'patch_embed1': 0, 'blocks1.1': 2, 'patch_embed2': 3, 'patch_embed4': 5}
        | {'net.norm1': 2, 'net.norm2': 3, 'net.norm3': 4, 'net.norm4': 5},
    ),
    mm_pvt=(
        of_mm('MMPVT', 'mmdet.PyramidVisionTransformer', mm_backbones.PVT),
        {'layers.0.1.0.': 0, 'layers.1.1.0.': 3, 'layers.1.0.': 3, 'layers.1.1.1': 3},
    ),
    mm_twins=(
        of_mm('MMTwins', 'mmseg.PCPVT', mm_backbones.TWINS),
        {'patch_embeds.0': 0, 'position_encodings.0': 1, 'position_encodings.2': 4},
    ),
    mm_sam=(
        of_mm('MMViTSAM', 'mmpretrain.ViTSAM', mm_backbones.SAM),
        {'pos_embed': 0, 'layers.2.ln1': 3, 'channel_reduction': 4},
    ),
)
MM_CASES = mm_backbones.PLAIN_CASES + mm_backbones.STAGED_CASES
EVA = dict(model='eva02_small_patch14_224', img_size=64)
EVA |= dict(model_args=dict(patch_size=16, embed_dim=16, depth=3, num_heads=2))
# Configs for all rows of the table, and for the kinds above.
ROWS = {name: config for name, (config, _) in FAMILIES.items()}
ROWS |= {
    f'{kind}{number}': of_mm(family, kind, settings)
    for number, (family, kind, settings, _) in enumerate(MM_CASES)
}
ROWS |= dict(eva=dict(EVA, type='TimmAnchor'))
ROWS |= dict(swin_v2=swin(model='swinv2_tiny_window8_256', out_indices=(1, -1)))
every = pytest.mark.parametrize('family', FAMILIES)
rows = pytest.mark.parametrize('family', ROWS)
# Networks of mm and chains are trained as a whole.
trained = pytest.mark.parametrize(
    'family', [n for n in FAMILIES if n[:3] != 'mm_' and n != 'chain']
)


@pytest.fixture(autouse=True)
def registered():
    for package in ('mmdet', 'mmpretrain', 'mmseg'):
        pytest.importorskip(f'{package}.models')


def build(family, **settings):
    torch.manual_seed(1)
    return disturb(MODELS.build(deepcopy(ROWS[family]) | settings)).eval()


def images_for(family, number=2, width=64):
    torch.manual_seed(2)
    height, more = (56, 6) if family == 'timm' else (64, 0)
    return torch.randn(number, 3, height, width + more)


@pytest.mark.parametrize('number', [0, 1, 5])
def test_token_state_knows_its_prefix_tokens(number):
    pixels, prefix = torch.randn(2, 3, 4, 5), torch.randn(2, number, 3)
    state = TokenState.of_map(pixels)
    state = state._replace(tokens=torch.cat([prefix, state.tokens], dim=1))
    assert state.num_prefix == number
    assert state.prefix.equal(prefix)
    assert state.patches.equal(pixels.flatten(2).transpose(1, 2))
    assert state.as_map().equal(pixels)


def test_every_row_of_the_table_has_a_case():
    names = {owner_of_forward(build(n).net) for n in ROWS if 'net' in ROWS[n]}
    with torch.device('meta'):
        models = {config['model'] for config in ROWS.values() if 'model' in config}
        names |= {owner_of_forward(timm.create_model(model)) for model in models}
    assert names >= MIRRORED.keys()


@rows
@torch.no_grad()
def test_anchor_forward_equals_blocks_one_by_one(family):
    anchor, images = build(family), images_for(family)
    states = states_of(anchor, images)
    scales = zip(states, anchor.block_dims, anchor.block_strides, strict=True)
    for state, dim, stride in scales:
        assert state.tokens.shape[-1] == dim
        assert state.num_prefix == anchor.num_prefix
        assert state.grid == tuple(-(-side // stride) for side in images.shape[2:])
    wanted = [
        anchor.to_output(states[i], anchor.with_cls, place)
        for place, i in enumerate(anchor.out_indices)
    ]
    for a, b in zip(tree_leaves(anchor(images)), tree_leaves(wanted), strict=True):
        assert a.equal(b)
    anchor.out = 'end'
    assert anchor(images).tokens.equal(states[-1].tokens)
    assert len(anchor.stages) == len(set(anchor.block_strides))


@rows
@torch.no_grad()
def test_anchor_kept_blocks_load_and_run_alone(family, tmp_path):
    whole = build(family)
    kept = range(0, whole.depth, 2)
    part = build(family, kept_blocks=kept)
    if isinstance(whole, BlockwiseAnchor):
        part.load_state_dict(whole.state_dict(), strict=False)
    else:
        weights = {f'backbone.{k}': v for k, v in whole.state_dict().items()}
        torch.save(weights, path := str(tmp_path / 'a.pth'))
        part.init_cfg = dict(type='Pretrained', checkpoint=path, prefix='backbone')
        part.init_weights()
    images = images_for(family)
    state = whole.embed(images)
    assert part.embed(images).tokens.equal(state.tokens)
    for i in range(whole.depth):
        before, state = state, whole.run_block(state, i)
        if i in kept:
            assert part.run_block(before, i).tokens.equal(state.tokens)
    lost = whole.state_dict().keys() - part.state_dict().keys()
    blocks = {whole.layer_depth(k)[0] - 1 for k in lost}
    assert blocks
    assert not blocks & {*kept}
    with pytest.raises(ValueError, match=r'kept_blocks.*blocks 0 to'):
        build(family, kept_blocks=[0, whole.depth])


@every
def test_anchor_layer_depth_is_level_of_decay(family):
    anchor = build(family)
    for name, level in FAMILIES[family][1].items():
        of_name = [n for n, _ in anchor.named_parameters() if name in n]
        found = {anchor.layer_depth(n) for n in of_name}
        assert found == {(level, anchor.depth + 2)}, name


def levels_by_step(anchor, images):
    """Yield each step of a network, and the levels of all parameters that it reads."""
    names = {id(m): name for name, m in anchor.named_modules()}
    run = []
    for module in anchor.modules():
        if [*module.parameters(recurse=False)]:
            module.register_forward_pre_hook(lambda m, _: run.append(names[id(m)]))

    def read():
        found = {anchor.layer_depth(f'{name}.weight')[0] for name in run}
        run.clear()
        return found

    state = anchor.embed(images)
    yield 'embed', None, read()
    places = {i: place for place, i in enumerate(anchor.out_indices)}
    for i in range(anchor.depth):
        if anchor.enters(i):
            anchor.enter(state, i)
            yield 'enter', i, read()
        state = anchor.run_block(state, i)
        yield 'block', i, read()
        if i in places:
            anchor.to_output(state, False, places[i])
            yield 'output', i, read()


@rows
@torch.no_grad()
def test_anchor_levels_follow_the_order_of_modules(family):
    anchor = build(family)
    end, seen = anchor.depth + 1, set()
    entered = [i for i in range(anchor.depth) if anchor.enters(i)]
    for step, i, found in levels_by_step(anchor, images_for(family, 1)):
        if step == 'embed':
            allowed = {0}
        elif step == 'output':  # norms of maps, or those before the next stage
            allowed = {i + 1, end}
        else:  # the layers between two stages, and the norm after the last block
            allowed = {i, i + 1} if i in entered else {i + 1}
            allowed |= {end} if i == anchor.depth - 1 else set()
        net = ROWS[family].get('net', {})
        shared = {0} if net.get('use_shared_rel_pos_bias') else set()
        assert found <= allowed | shared, (step, i)
        seen |= found
    assert seen >= {*range(1, end)}


def loss_and_gradients(anchor, images):
    torch.manual_seed(3)
    loss = sum(m.square().mean() for m in anchor(images))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in anchor.named_parameters()}


@trained
def test_anchor_with_cp_changes_nothing(family):
    images, calls, results = images_for(family, 4), [], []
    for with_cp in (False, True):
        anchor = build(family, drop_path_rate=0.4, with_cp=with_cp).train()
        anchor.trunk.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
        results.append(loss_and_gradients(anchor, images))
    assert len(calls) == 1 + 2
    assert results[1][0].equal(results[0][0])
    torch.testing.assert_close(*(gradients for _, gradients in results))
    with torch.no_grad():
        anchor(images)
    assert len(calls) == 1 + 2 + 1


@trained
def test_anchor_frozen_stages_stay_as_they_are(family):
    """They get no gradient, and keep their statistics."""
    anchor = build(family, frozen_stages=2, out_indices=(-1,)).train()
    before = {k: v.clone() for k, v in anchor.state_dict().items()}
    loss_and_gradients(anchor, images_for(family, 4))
    for name, parameter in anchor.named_parameters():
        frozen = anchor.layer_depth(name)[0] <= 2
        assert parameter.requires_grad != frozen, name
        assert frozen == (parameter.grad is None), name
    moved = {k for k, v in anchor.state_dict().items() if not v.equal(before[k])}
    assert all(anchor.layer_depth(k)[0] > 2 for k in moved)
    modes = [{m.training for m in b.modules()} for b in anchor.trunk.blocks]
    assert modes == [{i >= 2} for i in range(anchor.depth)]
    everything = build(family, frozen_stages=anchor.depth)
    assert not any(p.requires_grad for p in everything.parameters())


@every
@torch.no_grad()
def test_anchor_fix_input_size_changes_no_output(family):
    images = images_for(family, width=64 if family in ONE_SIZE else 96)
    anchor = build(family)
    wanted = tree_leaves(anchor(images))
    anchor.fix_input_size(images.shape[2:])
    torch.testing.assert_close(
        tree_leaves(anchor(images)), wanted, rtol=1e-5, atol=1e-5
    )
