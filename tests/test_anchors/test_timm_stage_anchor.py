"""Networks with stages equal those of timm, and load their weights."""

from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import convnext, disturb, levit, mobilenet, resnet, swin
from states import states_of
from torch import nn
from torch.testing import assert_close
from weights import build_from

from snnet_mm.anchors import timm_stage_anchor
from snnet_mm.models import SNNetv1

timm = pytest.importorskip('timm')

SWIN_V2 = dict(model='swinv2_tiny_window8_256')
FAMILIES = dict(
    swin=(swin(), (4, 8, 16, 32), (2, 4, 7, 9)),
    # Windows clipped in the last stage, and patches of two pixels.
    windows=(swin(img_size=32, model_args=dict(patch_size=2)), (2, 4, 8, 16), None),
    swin_v2=(swin(**SWIN_V2), (4, 8, 16, 32), (2, 4, 7, 9)),
    basic=(resnet(), (4, 8, 16, 32), (2, 4, 6, 8)),
    bottleneck=(resnet('resnet50'), (4, 8, 16, 32), (3, 7, 13, 16)),
    convnext=(convnext(), (4, 8, 16, 32), (1, 3, 6, 7)),
    levit=(levit(), (16, 32, 64), (2, 4, 6)),
    levit_conv=(levit(model='levit_conv_192'), (16, 32, 64), (2, 4, 6)),
    mobilenet=(mobilenet(), (4, 8, 16, 32), (1, 3, 8, 12)),
)


def of_timm(config, **kwargs):
    sized = config['model'].startswith(('swin', 'levit'))
    size = dict(img_size=config['img_size']) if sized else {}
    return timm.create_model(config['model'], **config['model_args'], **size, **kwargs)


def same_weights(config, network=None, **kwargs):
    """A network of timm, and the anchor with its weights; both in eval mode."""
    network = network or disturb(of_timm(config))
    anchor = MODELS.build(config | kwargs).eval()
    anchor.load_state_dict(anchor.adapt_weights(network.state_dict()), strict=False)
    return network.eval(), anchor


def maps_of(anchor, images):
    """The map after every stage."""
    states = states_of(anchor, images)
    assert all(s.tokens.shape[1] == s.grid[0] * s.grid[1] for s in states)
    return [anchor.to_feature_map(states[stage[-1]]) for stage in anchor.stages]


@pytest.mark.parametrize('name', FAMILIES)
@torch.no_grad()
def test_maps_of_every_stage_equal_those_of_timm(name):
    config, strides, ends = FAMILIES[name]
    network, anchor = same_weights(config)
    ends = ends or (2, 4, 7, 9)
    assert tuple(stage.stop for stage in anchor.stages) == ends
    assert tuple(anchor.block_strides[i - 1] for i in ends) == strides
    assert anchor.input_size == (config['img_size'],) * 2
    images = torch.randn(2, 3, *anchor.input_size)
    wanted = network.forward_intermediates(images, intermediates_only=True)
    wanted = wanted[-len(ends) :]
    found = maps_of(anchor, images)
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    widths = [m.shape[1] for m in wanted]
    assert [anchor.block_dims[i - 1] for i in ends] == widths


@pytest.mark.parametrize('name', ['swin', 'swin_v2', 'basic', 'convnext', 'mobilenet'])
@torch.no_grad()
def test_images_of_another_size(name):
    config, size = FAMILIES[name][0], (61, 90)
    network, anchor = same_weights(config)
    images = given = torch.randn(2, 3, *size)
    if 'swin' in name:
        state = network.state_dict()
        network = of_timm(config, strict_img_size=False).eval()
        network.load_state_dict(state)
        # timm wants whole patches here; ours are filled with zeros.
        given = nn.functional.pad(images, (0, -size[1] % 4, 0, -size[0] % 4))
    wanted = network.forward_intermediates(given, intermediates_only=True)[-4:]
    assert_close(maps_of(anchor, images), wanted, rtol=1e-5, atol=1e-5)
    (before,) = anchor(images)
    anchor.fix_input_size(size)
    assert anchor(images)[0].equal(before)
    masks = [m.dynamic_mask for m in anchor.modules() if hasattr(m, 'dynamic_mask')]
    assert anchor.input_size == size
    assert not any(masks)
    assert bool(masks) == ('swin' in name)


@torch.no_grad()
def test_levit_is_for_one_size_and_keeps_no_bias_of_old_weights():
    anchor, again = (MODELS.build(levit()).eval() for _ in range(2))
    images = torch.randn(1, 3, 64, 64)
    anchor(images)
    anchor.load_state_dict(disturb(again).state_dict())
    assert anchor(images)[0].equal(again(images)[0])
    with pytest.raises(ValueError, match=r'\(64, 80\) is invalid'):
        anchor(torch.zeros(1, 3, 64, 80))


def from_file(config, state, tmp_path, prefix=''):
    state = dict(state_dict=state)
    return build_from(tmp_path / 'weights.pth', state, config, prefix=prefix)


@torch.no_grad()
def test_weights_in_the_names_of_timm_of_the_authors_and_ours(tmp_path):
    config = swin(out='end')
    network, anchor = same_weights(config)
    theirs, images = network.state_dict(), torch.randn(1, 3, 64, 64)
    # The authors of Swin have the layers between stages at the end of the first one.
    official = {k.replace('head.fc.', 'head.'): v for k, v in theirs.items()}
    for k in [k for k in official if 'downsample' in k]:
        stage = int(k.split('.')[1])
        official[k.replace(str(stage), str(stage - 1), 1)] = official.pop(k)
    official['layers.0.blocks.1.attn_mask'] = torch.zeros(4, 16, 16)
    ours = {f'backbone.{k}': v for k, v in anchor.state_dict().items()}
    wanted = anchor(images).tokens
    for state, prefix in ((theirs, ''), (official, ''), (ours, 'backbone.')):
        assert from_file(config, state, tmp_path, prefix)(images).tokens.equal(wanted)


@torch.no_grad()
def test_the_family_that_the_docs_add(monkeypatch):
    text = (Path(__file__).parents[2] / 'docs/how_to/anchors.md').read_text()
    blocks = [part.split('```')[0] for part in text.split('```python\n')]
    (code,) = [block for block in blocks if "FAMILIES['regnet']" in block]
    monkeypatch.setitem(timm_stage_anchor.FAMILIES, 'regnet', None)
    exec(code, {})  # noqa: S102
    pair = []
    for name in ('regnetx_002', 'regnetx_004'):
        config = dict(type='TimmStageAnchor', model=name, img_size=64, model_args={})
        network, anchor = same_weights(config)
        images = torch.randn(1, 3, 64, 64)
        wanted = network.forward_intermediates(images, intermediates_only=True)
        assert_close(maps_of(anchor, images), wanted[-4:], rtol=1e-5, atol=1e-5)
        pair.append(anchor)
    assert len(SNNetv1(pair, stages=(2, 3), out='end').space) == 2 + 6 + 11


@pytest.mark.parametrize('kind', [swin, levit, resnet])
@torch.no_grad()
def test_downsampling_as_blocks_of_their_own(kind):
    joined, images = MODELS.build(kind()).eval(), torch.randn(1, 3, 64, 64)
    apart = MODELS.build(kind() | dict(downsampling_blocks=True)).eval()
    apart.load_state_dict(apart.adapt_weights(disturb(joined).state_dict()))
    assert apart.adapt_weights(apart.state_dict()).keys() == apart.state_dict().keys()
    before, after = states_of(joined, images), states_of(apart, images)
    assert len(joined.stages) == len(apart.stages)
    extra = kind is not resnet
    for a, b in zip(joined.stages, apart.stages, strict=True):
        assert len(b) == len(a) + extra
        for i, j in zip(a, b[extra:], strict=True):
            assert_close(before[i].tokens, after[j].tokens, rtol=1e-5, atol=1e-5)
    if extra:
        assert after[0].tokens.equal(apart.embed(images).tokens)
    apart.fix_input_size((64, 64))
    assert states_of(apart, images)[-1].tokens.allclose(after[-1].tokens, atol=1e-5)


@torch.no_grad()
def test_low_rank_updates_of_convnext(tmp_path):
    config = convnext(downsampling_blocks=True, out='end')
    network, plain = same_weights(config)
    lora = config | dict(lora=dict(rank=2, alpha=6, targets=('fc1', 'fc2')))
    weights, images = network.state_dict(), torch.randn(2, 3, 64, 64)
    wanted = plain(images).tokens
    for state in (weights, plain.state_dict()):
        anchor = from_file(lora, state, tmp_path)
        assert anchor(images).tokens.equal(wanted)
    trained = {k for k, p in anchor.named_parameters() if p.requires_grad}
    assert len(trained) == 7 * 2 * 2
    assert all('.mlp.fc' in k and '.lora_' in k for k in trained)
