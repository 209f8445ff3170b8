import pytest
import torch
from narrow_timm import (
    DINOV2,
    FAMILIES,
    anchor_of,
    assert_equal_to_timm,
    patch_of,
    timm_of,
)
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.costs import cost_table
from snnet_mm.models import SNNetv2

timm = pytest.importorskip('timm')
DINOV3, ROPE_MIXED = 'vit_small_patch16_dinov3', 'vit_small_patch16_rope_mixed_224'


@pytest.mark.parametrize('name', FAMILIES)
def test_equal_to_timm(name, monkeypatch):
    """At the size it is built for, at another, and padded to whole patches."""
    anchor, patch = anchor_of(name), patch_of(name)
    assert (anchor.num_prefix, anchor.patch_size) == (FAMILIES[name][1], patch)
    assert anchor.input_size == (5 * patch, 4 * patch)
    model, images = timm_of(name, anchor), torch.randn(2, 3, *anchor.input_size)
    assert_equal_to_timm(anchor, model, images)
    images = torch.randn(1, 3, 4 * patch, 7 * patch)
    assert_equal_to_timm(anchor, model, images)
    # And back again, past whatever was kept of the other size.
    images[..., 4 * patch - 3 :, :] = images[..., 6 * patch + 1 :] = 0
    padded = images[..., : 4 * patch - 3, : 6 * patch + 1]
    wanted = anchor(images)
    assert_close(anchor(padded), wanted, rtol=0, atol=0)
    # Fixed, it is built for that size, and nothing is left to be resampled.
    anchor.fix_input_size(padded.shape[2:])
    assert anchor.grid == (4, 7)
    monkeypatch.delattr('torch.nn.functional.interpolate')
    assert_close(anchor(padded), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    'name, with_cp',
    [(DINOV3, True), (ROPE_MIXED, False)],
)
def test_training_equals_timm(name, with_cp):
    """Drop path, gradients and checkpointing; DINOv3's coordinates stay as they are."""
    anchor = anchor_of(name, drop_path_rate=0.5, with_cp=with_cp, out='end').train()
    model = timm_of(name, anchor, drop_path_rate=0.5).train()
    if 'dinov3' in name:
        model.rope.eval()
    images, calls = torch.randn(4, 3, *anchor.input_size), []
    anchor.vit.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    torch.manual_seed(1)
    ours = anchor(images).tokens
    torch.manual_seed(1)
    theirs = model.forward_features(images)
    assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    ours.square().mean().backward()
    assert len(calls) == 1 + with_cp
    theirs.square().mean().backward()
    wanted = dict(model.named_parameters())
    for key, parameter in anchor.vit.named_parameters():
        assert_close(parameter.grad, wanted[key].grad, rtol=1e-4, atol=1e-5)
    assert not torch.equal(ours, anchor.eval()(images).tokens)


def test_without_the_final_norm_and_with_cls():
    anchor = anchor_of(DINOV2, final_norm=False, with_cls=True)
    assert not [k for k in anchor.state_dict() if k.startswith('vit.norm.')]
    images = torch.randn(1, 3, 56, 70)
    wanted = timm_of(DINOV2, anchor_of(DINOV2)).forward_intermediates(
        images, return_prefix_tokens=True, intermediates_only=True
    )
    anchor.vit.load_state_dict(anchor_of(DINOV2).vit.state_dict(), strict=False)
    wanted = tuple((m, tokens[:, 0]) for m, tokens in wanted)
    assert_close(anchor(images), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('name', [DINOV2, ROPE_MIXED])
def test_costs_on_meta_tensors(name):
    """All parameters, and the FLOPs of timm's own model."""
    anchor = anchor_of(name)
    table = cost_table(SNNetv2([anchor, anchor_of(name)]), anchor.input_size)
    assert table[1].params == sum(p.numel() for p in anchor.parameters())
    with torch.device('meta'):
        model = timm_of(name, anchor)
        images = torch.empty(1, 3, *anchor.input_size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.forward_intermediates(images, intermediates_only=True)
    assert counter.get_total_flops() // 2 == table[1].flops
