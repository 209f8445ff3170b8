"""Plain ViTs of timm as anchors equal timm's own models."""

import pytest
import torch
from narrow_timm import (
    FAMILIES,
    NARROW,
    anchor_of,
    assert_equal_to_timm,
    patch_of,
    timm,
    timm_of,
)
from torch.testing import assert_close

from snnet_mm.anchors import (
    PlainFamily,
    TimmAnchor,
    TimmStageAnchor,
    register_family,
)
from snnet_mm.anchors.blockwise import MIRRORED
from snnet_mm.anchors.vit_block import DropPath


@pytest.mark.parametrize('name', FAMILIES)
def test_timm_anchor_equals_timm(name, monkeypatch):
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
    ('name', 'branches'),
    [
        ('deit3_small_patch16_224', 2),
        ('vit_small_patch16_18x2_224', 4),
        ('vit_small_patch16_dinov3', 2),
    ],
)
def test_timm_anchor_drop_path_is_uniform(name, branches):
    args = dict(img_size=32, model_args=dict(depth=3, embed_dim=16, num_heads=2))
    anchor = TimmAnchor(name, drop_path_rate=0.5, drop_path_uniform=True, **args)
    for block in anchor.vit.blocks:
        rates = [m.rate for m in block.modules() if isinstance(m, DropPath)]
        assert rates == [0.5] * branches


@pytest.mark.parametrize(
    'name', ['vit_small_patch16_dinov3', 'vit_small_patch16_rope_mixed_224']
)
def test_timm_anchor_training_equals_timm(name):
    """Drop path and gradients; DINOv3's coordinates are not augmented."""
    anchor = anchor_of(name, drop_path_rate=0.5, out='end').train()
    model = timm_of(name, anchor, drop_path_rate=0.5).train()
    model.rope.eval()
    images, outputs = torch.randn(4, 3, *anchor.input_size), []
    for run in (lambda x: anchor(x).tokens, model.forward_features):
        torch.manual_seed(1)
        outputs.append(run(images))
        outputs[-1].square().mean().backward()
    assert_close(*outputs, rtol=1e-5, atol=1e-5)
    wanted = dict(model.named_parameters())
    for key, parameter in anchor.vit.named_parameters():
        assert_close(parameter.grad, wanted[key].grad, rtol=1e-4, atol=1e-5)
    assert not torch.equal(outputs[0], anchor.eval()(images).tokens)


@pytest.mark.parametrize('kind', [TimmAnchor, TimmStageAnchor])
@pytest.mark.parametrize('args', ['swiglu_mlp', ['depth'], dict(img_size=64)])
def test_timm_anchors_refuse_arguments_of_their_own(kind, args):
    with pytest.raises(ValueError, match=r"model_args=.*dict without \[.*'img_size'"):
        kind('not built', model_args=args)


@torch.no_grad()
def test_timm_anchor_runs_no_pooling():
    name, images = 'vit_small_patch16_dinov3', torch.randn(1, 3, 80, 64)
    anchor = anchor_of(name)
    args = dict(NARROW, global_pool='map')
    pooling = TimmAnchor(name, model_args=args, out_indices=(0, 1, 2)).eval()
    pooling.load_state_dict(anchor.state_dict())
    assert_close(pooling(images), anchor(images), rtol=0, atol=0)


OWN = f'{__name__}.OwnViT'  # another forward than timm's


class OwnViT(timm.models.VisionTransformer):
    def forward(self, x):
        return 2 * super().forward(x)


@torch.no_grad()
def test_timm_anchor_of_an_own_class_takes_a_row(monkeypatch):
    monkeypatch.setattr(timm, 'create_model', lambda name, **kwargs: OwnViT(**kwargs))
    settings = dict(model='own', img_size=32, model_args=NARROW, out='end')
    with pytest.raises(ValueError, match=f"'own' is invalid.*{OWN}.*anchors.model"):
        TimmAnchor(**settings)
    monkeypatch.setitem(MIRRORED, OWN, None)
    register_family(PlainFamily('TimmAnchor', (OWN,)))
    anchor, images = TimmAnchor(**settings).eval(), torch.randn(2, 3, 32, 32)
    assert anchor(images).tokens.equal(anchor.vit.forward_features(images))
