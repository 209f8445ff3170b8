"""Gradient checkpointing, freezing and parts of anchors, shown by plain ViTs."""

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import disturb, resnet, swin
from weights import build_from

IMAGES = torch.randn(4, 3, 32, 24)


def loss_and_gradients(vit, seed=3):
    vit.zero_grad()
    torch.manual_seed(seed)
    loss = sum(m.square().mean() for m in vit(IMAGES))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in vit.named_parameters()}


@pytest.mark.parametrize('rel_pos_bias, training', [(True, True), (False, False)])
def test_checkpointing_changes_nothing(build_vit, rel_pos_bias, training):
    kwargs = dict(out_indices=(0, 2), drop_path_rate=0.4, rel_pos_bias=rel_pos_bias)
    plain = build_vit(**kwargs).train(training)
    saving = build_vit(**kwargs, with_cp=True).train(training)
    saving.load_state_dict(plain.state_dict())
    calls = []
    saving.blocks[1].register_forward_pre_hook(lambda *_: calls.append(1))
    expected_loss, expected = loss_and_gradients(plain)
    loss, gradients = loss_and_gradients(saving)
    assert loss.equal(expected_loss)
    assert len(calls) == 2
    for name, gradient in gradients.items():
        assert gradient.equal(expected[name]), name
    # Drop path is at work, so that its random state matters.
    assert loss_and_gradients(saving, 4)[0].equal(loss) != training
    with torch.no_grad():
        saving(IMAGES)
    assert len(calls) == 5


@pytest.mark.parametrize('stages', [-1, 0, 1, 2, 3])
def test_frozen_stages(build_vit, stages):
    kwargs = dict(num_registers=1, rel_pos_bias=True, final_norm=True)
    vit = build_vit(frozen_stages=stages, drop_path_rate=0.3, **kwargs)
    embedding = ('cls_token', 'reg_token', 'pos_embed', 'patch_embed.')
    parts = [*embedding, 'blocks.0.', 'blocks.1.', 'blocks.2.', 'norm.']
    frozen = tuple(parts[: (0, 4, 5, 6, 8)[stages + 1]])
    for name, parameter in vit.named_parameters():
        assert parameter.requires_grad != name.startswith(frozen), name
    for mode in (True, False, True):
        assert vit.train(mode) is vit
        assert vit.training == mode
        assert vit.patch_embed.training == (mode and stages < 0)
        assert vit.norm.training == (mode and stages < 3)
        for i, block in enumerate(vit.blocks):
            assert {m.training for m in block.modules()} == {mode and i >= stages}


ARCH = dict(embed_dims=8, depth=9, num_heads=2)
VIT = dict(type='PlainViT', arch=ARCH, img_size=64, final_norm=True)
VIT['drop_path_rate'] = 0.4


@pytest.mark.parametrize('prefix', ['', 'backbone.'])
@pytest.mark.parametrize(
    'config, kept',
    [
        (VIT, (0, 3, 7, 8)),
        (resnet(), (0, 2, 4, 6, 7)),
        # Patch merging is in blocks of its own; the file has it in those after it.
        (swin(downsampling_blocks=True), (0, 3, 6, 10, 11)),
    ],
)
@torch.no_grad()
def test_some_blocks_of_a_network_alone(config, kept, prefix, tmp_path):
    source = {k: v for k, v in config.items() if k != 'downsampling_blocks'}
    weights = disturb(MODELS.build(source)).state_dict()
    file = tmp_path / 'a.pth', {f'{prefix}{k}': v for k, v in weights.items()}
    kept_alone = config | dict(kept_blocks=kept, out='end')
    whole, part = (build_from(*file, c, prefix=prefix) for c in (config, kept_alone))
    images = torch.randn(2, 3, 64, 64)
    state = whole.embed(images)
    for i in kept:
        state = whole.run_block(state, i)
    assert part(images).tokens.equal(state.tokens)
    held = {int(k.split('.')[1]) for k in part.state_dict() if k.startswith('blocks')}
    assert held <= {*kept}
    assert held | {0} == {*kept}  # the first one of Swin is its patch embedding
    if config is VIT:
        assert part.blocks[7].drop_path.rate == whole.blocks[7].drop_path.rate > 0.3
        assert 'norm.weight' in part.state_dict()


def test_blocks_that_a_network_lacks_and_weights_of_another_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r'kept_blocks.*blocks 0 to 8'):
        MODELS.build(VIT | dict(kept_blocks=[0, 9]))
    deeper = MODELS.build(VIT | dict(arch=ARCH | dict(depth=10))).state_dict()
    with pytest.raises(ValueError, match=r'has blocks\.9\.'):
        build_from(tmp_path / 'a.pth', deeper, VIT | dict(kept_blocks=[0, 8]))
