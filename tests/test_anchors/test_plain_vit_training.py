"""Gradient checkpointing, freezing, and anchors without position embedding."""

import copy

import pytest
import torch
from states import run

from snnet_mm.anchors import PlainViT
from snnet_mm.models import SNNetv2

IMAGES = torch.randn(4, 3, 32, 24)


def loss_and_gradients(vit, seed=3):
    vit.zero_grad()
    torch.manual_seed(seed)
    loss = sum(m.square().mean() for m in vit(IMAGES))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in vit.named_parameters()}


@pytest.mark.parametrize('training', [True, False])
@pytest.mark.parametrize('rel_pos_bias', [True, False])
def test_checkpointing_changes_nothing(build_vit, rel_pos_bias, training):
    kwargs = dict(
        out_indices=(0, 2),
        drop_path_rate=0.4,
        rel_pos_bias=rel_pos_bias,
        num_registers=1,
    )
    plain = build_vit(**kwargs).train(training)
    saving = build_vit(**kwargs, with_cp=True).train(training)
    saving.load_state_dict(plain.state_dict())
    expected_loss, expected = loss_and_gradients(plain)
    loss, gradients = loss_and_gradients(saving)
    assert loss.equal(expected_loss)
    for name, gradient in gradients.items():
        assert gradient.equal(expected[name]), name
    # Drop path is at work, so that its random state matters.
    assert loss_and_gradients(saving, 4)[0].equal(loss) != training


def test_checkpointing_runs_each_block_twice(build_vit):
    vit = build_vit(with_cp=True)
    calls = []
    vit.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        vit(IMAGES)
    assert len(calls) == 1
    loss_and_gradients(vit)
    assert len(calls) == 3


def frozen_names(vit):
    return {n for n, p in vit.named_parameters() if not p.requires_grad}


EMBEDDING = {
    'cls_token',
    'reg_token',
    'pos_embed',
    'patch_embed.proj.weight',
    'patch_embed.proj.bias',
}


@pytest.mark.parametrize('stages', [-1, 0, 1, 2, 3])
def test_frozen_stages(build_vit, stages):
    vit = build_vit(
        frozen_stages=stages,
        num_registers=1,
        rel_pos_bias=True,
        final_norm=True,
        drop_path_rate=0.3,
    )
    names = {n for n, _ in vit.named_parameters()}
    blocks = tuple(f'blocks.{i}.' for i in range(stages))
    expected = {n for n in names if n.startswith(blocks)} if blocks else set()
    expected |= EMBEDDING if stages >= 0 else set()
    expected |= {'norm.weight', 'norm.bias'} if stages == 3 else set()
    assert frozen_names(vit) == expected
    for mode in (True, False, True):
        assert vit.train(mode) is vit
        assert vit.training == mode
        assert vit.patch_embed.training == (mode and stages < 0)
        assert vit.norm.training == (mode and stages < 3)
        for i, block in enumerate(vit.blocks):
            trains = mode and i >= stages
            assert {m.training for m in block.modules()} == {trains}


@pytest.mark.parametrize('with_cp', [False, True])
def test_frozen_parts_do_not_move(build_vit, with_cp):
    vit = build_vit(frozen_stages=2, drop_path_rate=0.5, with_cp=with_cp).train()
    before = copy.deepcopy(vit.state_dict())
    frozen = frozen_names(vit)
    optimizer = torch.optim.SGD(vit.parameters(), lr=0.1, weight_decay=0.1)
    vit(IMAGES)[0].square().mean().backward()
    optimizer.step()
    for name, value in vit.state_dict().items():
        assert value.equal(before[name]) == (name in frozen), name
    assert {n.split('.')[1] for n in before if n.startswith('blocks')} == set('012')
    # No drop path in what is frozen.
    first, second = (run(vit, vit.embed(IMAGES), 0, 2).tokens for _ in range(2))
    assert first.equal(second)


def test_an_anchor_of_a_stitched_backbone_stays_frozen(build_vit):
    net = SNNetv2(
        [build_vit(8, 2, frozen_stages=2), build_vit(12, 4)],
        dict(type='StitchingLayer'),
    )
    net.train()
    assert not any(block.training for block in net.anchors[0].blocks)
    assert all(block.training for block in net.anchors[1].blocks)


@pytest.mark.parametrize('stages', [-2, 4])
def test_frozen_stages_past_the_depth(build_vit, stages):
    message = rf'frozen_stages={stages} .* to 3 \(config key: frozen_stages\)'
    with pytest.raises(ValueError, match=message):
        build_vit(frozen_stages=stages)


@pytest.mark.parametrize('prefix', [False, True])
def test_without_position_embedding(build_vit, prefix):
    kwargs = dict(num_registers=2)
    vit = build_vit(abs_pos_embed=False, pos_embed_prefix=prefix, **kwargs)
    zeroed = build_vit(pos_embed_prefix=prefix, **kwargs)
    zeroed.load_state_dict(vit.state_dict(), strict=False)
    torch.nn.init.zeros_(zeroed.pos_embed)
    assert 'pos_embed' not in vit.state_dict()
    assert vit.num_embedded_prefix == 0
    assert vit(IMAGES)[0].equal(zeroed(IMAGES)[0])


def test_large_presets_take_any_patch_size():
    with torch.device('meta'):
        vit = PlainViT('huge', img_size=224, patch_size=14)
    assert vit.grid == (16, 16)
    assert vit.pos_embed.shape == (1, 256, 1280)
    assert vit.patch_embed.proj.weight.shape == (1280, 3, 14, 14)
