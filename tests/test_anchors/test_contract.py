"""What every anchor promises, for one network of every family."""

from copy import deepcopy
from dataclasses import dataclass

import mm_backbones
import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import convnext, disturb, levit, mobilenet, resnet, swin
from states import states_of
from torch.utils._pytree import tree_leaves


@dataclass
class Family:
    config: dict
    kept: tuple[int, ...]  # blocks that a part keeps
    levels: dict[str, int]  # for layer-wise decay, by parts of names of parameters
    size: tuple[int, int] = 64, 64
    other_size: tuple[int, int] = 64, 96

    def build(self, **settings):
        torch.manual_seed(1)
        return disturb(MODELS.build(deepcopy(self.config) | settings)).eval()

    def images(self, number=2, size=None):
        torch.manual_seed(2)
        return torch.randn(number, 3, *(size or self.size))


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
RESNET = dict(depth=18, base_channels=4, stem_channels=4)


def of_mm(family, net, settings, kept, levels):
    return Family(dict(type=family, net=dict(settings, type=net)), kept, levels)


FAMILIES = dict(
    plain=Family(
        PLAIN,
        (0, 3, 4),
        {'pos_embed': 0, 'blocks.1.ls1': 2, 'blocks.4.': 5, 'norm.weight': 6},
    ),
    timm=Family(
        TIMM,
        (0, 2, 3),
        {'reg_token': 0, 'patch_embed': 0, 'blocks.1.ls1': 2, 'vit.norm.': 5},
        *((56, 70), (56, 102)),
    ),
    swin=Family(
        swin(out_indices=(1, -1)),
        (0, 2, 4, 7),
        {'stem': 0, 'blocks.2.downsample': 3, 'blocks.3.': 4},
    ),
    resnet=Family(
        resnet(), (0, 2, 4, 6, 7), {'stem.conv1': 0, 'blocks.4.downsample': 5}
    ),
    convnext=Family(convnext(), (0, 1, 3), {'stem': 0, 'blocks.1.downsample': 2}),
    levit=Family(levit(), (0, 2, 4), {'stem': 0, 'blocks.5.': 6}, other_size=(64, 64)),
    mobilenet=Family(mobilenet(), (0, 1, 3), {'stem': 0, 'blocks.3.': 4}),
    chain=Family(CHAIN, (0, 2, 4), {'pos_embed': 0, 'net.blocks.2.': 3, 'layers.3': 2}),
    mm_vit=of_mm(
        *('MMSegViT', 'mmseg.VisionTransformer', mm_backbones.PLAIN),
        *((0, 2), {'cls_token': 0, 'layers.2.ln1': 3}),
    ),
    mm_swin=of_mm(
        *('MMSwin', 'mmseg.SwinTransformer', mm_backbones.SWIN, (0, 2, 4, 7)),
        {'stages.1.blocks.0': 3, 'stages.0.downsample': 3},
    ),
    mm_resnet=of_mm(
        *('MMResNet', 'mmseg.ResNet', RESNET, (0, 2, 4, 6, 7)),
        {'net.conv1': 0, 'layer2.0': 3},
    ),
    mm_convnext=of_mm(
        *('MMConvNeXt', 'mmpretrain.ConvNeXt', mm_backbones.CONVNEXT, (0, 1, 3)),
        {'stages.1.0': 2, 'downsample_layers.1': 2},
    ),
    mm_mit=of_mm(
        *('MMMiT', 'mmseg.MixVisionTransformer', mm_backbones.MIT, (0, 2, 3)),
        {'layers.1.0': 3, 'layers.0.2': 2, 'layers.2.1.1': 5},
    ),
)


@pytest.fixture(params=FAMILIES)
def family(request):
    if request.param.startswith('mm_'):
        pytest.importorskip('mmpretrain.models')
        pytest.importorskip('mmseg.models')
    elif request.param not in ('plain', 'chain'):
        pytest.importorskip('timm')
    return FAMILIES[request.param]


# Networks of mm and chains are trained as a whole.
trained = pytest.mark.parametrize(
    'family', [n for n in FAMILIES if n[:3] != 'mm_' and n != 'chain'], indirect=True
)


@torch.no_grad()
def test_forward_equals_blocks_one_by_one(family):
    anchor, images = family.build(), family.images()
    states = states_of(anchor, images)
    scales = zip(states, anchor.block_dims, anchor.block_strides, strict=True)
    for state, dim, stride in scales:
        assert state.tokens.shape[-1] == dim
        assert state.grid == tuple(-(-side // stride) for side in family.size)
    wanted = [
        anchor.to_output(states[i], anchor.with_cls, place)
        for place, i in enumerate(anchor.out_indices)
    ]
    for a, b in zip(anchor(images), wanted, strict=True):
        assert a.equal(b)
    anchor.out = 'end'
    assert anchor(images).tokens.equal(states[-1].tokens)
    assert len(anchor.stages) == len(set(anchor.block_strides))


@torch.no_grad()
def test_kept_blocks_load_and_run_alone(family, tmp_path):
    whole, part = family.build(), family.build(kept_blocks=family.kept)
    if family.config['type'].startswith('MM'):
        part.load_state_dict(whole.state_dict(), strict=False)
    else:
        weights = {f'backbone.{k}': v for k, v in whole.state_dict().items()}
        torch.save(weights, path := str(tmp_path / 'a.pth'))
        part.init_cfg = dict(type='Pretrained', checkpoint=path, prefix='backbone')
        part.init_weights()
    images = family.images()
    state, own = whole.embed(images), part.embed(images)
    for i in range(whole.depth):
        before, state = state, whole.run_block(state, i)
        if i in family.kept:
            assert part.run_block(before, i).tokens.equal(state.tokens)
    assert own.tokens.equal(whole.embed(images).tokens)
    lost = {
        whole.layer_depth(k)[0] - 1
        for k in whole.state_dict().keys() - part.state_dict().keys()
    }
    assert lost
    assert not lost & {*family.kept}
    with pytest.raises(ValueError, match=r'kept_blocks.*blocks 0 to'):
        family.build(kept_blocks=[0, whole.depth])


def test_levels_of_layer_decay(family):
    anchor = family.build()
    for name, level in family.levels.items():
        of_name = [n for n, _ in anchor.named_parameters() if name in n]
        found = {anchor.layer_depth(n) for n in of_name}
        assert found == {(level, anchor.depth + 2)}, name


def loss_and_gradients(family, anchor):
    anchor.zero_grad()
    images = family.images(4)
    torch.manual_seed(3)
    loss = sum(m.square().mean() for m in anchor(images))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in anchor.named_parameters()}


@trained
def test_with_cp_changes_nothing(family):
    plain, saving = (
        family.build(drop_path_rate=0.4, with_cp=cp).train() for cp in (False, True)
    )
    calls = []
    saving.trunk.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
    wanted_loss, wanted = loss_and_gradients(family, plain)
    loss, gradients = loss_and_gradients(family, saving)
    assert loss.equal(wanted_loss)
    assert len(calls) == 2
    torch.testing.assert_close(gradients, wanted)
    with torch.no_grad():
        saving(family.images())
    assert len(calls) == 3


@trained
def test_frozen_stages_get_no_gradient_and_keep_statistics(family):
    anchor = family.build(frozen_stages=2, out_indices=(-1,)).train()
    before = {k: v.clone() for k, v in anchor.state_dict().items()}
    loss_and_gradients(family, anchor)
    for name, parameter in anchor.named_parameters():
        frozen = anchor.layer_depth(name)[0] <= 2
        assert parameter.requires_grad != frozen, name
        assert frozen == (parameter.grad is None), name
    moved = {k for k, v in anchor.state_dict().items() if not v.equal(before[k])}
    assert all(anchor.layer_depth(k)[0] > 2 for k in moved)
    modes = [{m.training for m in b.modules()} for b in anchor.trunk.blocks]
    assert modes == [{i >= 2} for i in range(anchor.depth)]
    everything = family.build(frozen_stages=anchor.depth)
    assert not any(p.requires_grad for p in everything.parameters())


@torch.no_grad()
def test_fix_input_size_changes_no_output(family):
    anchor, images = family.build(), family.images(size=family.other_size)
    wanted = tree_leaves(anchor(images))
    anchor.fix_input_size(family.other_size)
    for a, b in zip(tree_leaves(anchor(images)), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
