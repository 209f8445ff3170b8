"""Networks with stages equal those of timm, and load their weights."""

from pathlib import Path

import pytest
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
from torch.nn.functional import pad
from torch.testing import assert_close
from weights import build_from

from snnet_mm.anchors import NetworkParts, StagedFamily, downsampling_first
from snnet_mm.anchors.blockwise import MIRRORED
from snnet_mm.models import SNNetv1
from snnet_mm.utils.timm_models import create_timm_model

FAMILIES = dict(
    swin=swin(),
    # Windows clipped in the last stage, and patches of two pixels.
    windows=swin(img_size=32, model_args=dict(patch_size=2)),
    swin_v2=swin(model='swinv2_tiny_window8_256'),
    basic=resnet(),
    bottleneck=resnet('resnet50'),
    split_attention=resnet('resnest14d'),  # of another module, by the same class
    convnext=convnext(),
    levit=levit(),
    levit_conv=levit(model='levit_conv_192'),
    mobilenet=mobilenet(),
    samvit=samvit(),
    hiera=hiera(),
    hiera_windows=hiera(model='hiera_small_abswin_256'),
    pvt=pvt(),
    mvit=mvit(),
    caformer=caformer(),
    poolformer=caformer(model='poolformer_s12'),
)
# Those of one image size, and those of one stage.
ONE_SIZE = 'levit', 'hiera', 'mvit'


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def of_timm(config, **kwargs):
    sized = config['model'].startswith(('swin', 'samvit', *ONE_SIZE))
    size = dict(img_size=config['img_size']) if sized else {}
    return create_timm_model(config['model'], **config['model_args'], **size, **kwargs)


def same_weights(config):
    """A network of timm, and the anchor with its weights; both in eval mode."""
    network, anchor = disturb(of_timm(config)).eval(), MODELS.build(config).eval()
    anchor.load_state_dict(anchor.adapt_weights(network.state_dict()), strict=False)
    return network, anchor


def assert_maps_equal(anchor, images, network, given=None):
    """The maps after every stage."""
    states = states_of(anchor, images)
    found = [anchor.to_feature_map(states[stage[-1]]) for stage in anchor.stages]
    given = images if given is None else given
    wanted = network.forward_intermediates(given, intermediates_only=True)
    assert_close(found, wanted[-len(found) :], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('name', FAMILIES)
def test_timm_stage_anchor_maps_equal_timm(name):
    """At the size that it is built for, at another, and fixed to that."""
    network, anchor = same_weights(config := FAMILIES[name])
    assert len(anchor.stages) == dict(levit=3, levit_conv=3, samvit=1).get(name, 4)
    assert anchor.input_size == (config['img_size'],) * 2
    assert_maps_equal(anchor, torch.randn(2, 3, *anchor.input_size), network)
    if name.startswith(ONE_SIZE):
        with pytest.raises(ValueError, match=r'\(64, 80\) is invalid.*only size'):
            anchor(torch.zeros(1, 3, 64, 80))
        return
    images = given = torch.randn(2, 3, 61, 90)
    if 'swin' in config['model']:
        other = of_timm(config, strict_img_size=False).eval()
        other.load_state_dict(network.state_dict())
        network = other
    if config['model'].startswith(('swin', 'samvit')):
        # timm wants whole patches here; ours are filled with zeros.
        patch = anchor.block_strides[0]
        given = pad(images, (0, -90 % patch, 0, -61 % patch))
    assert_maps_equal(anchor, images, network, given)
    anchor.fix_input_size((61, 90))
    assert_maps_equal(anchor, images, network, given)
    masks = [m.dynamic_mask for m in anchor.modules() if hasattr(m, 'dynamic_mask')]
    assert masks == [False] * len(masks)
    assert bool(masks) == ('swin' in config['model'])


def test_timm_stage_anchor_levit_keeps_no_bias_of_old_weights():
    anchor, again = (MODELS.build(levit()).eval() for _ in range(2))
    images = torch.randn(1, 3, 64, 64)
    anchor(images)
    anchor.load_state_dict(disturb(again).state_dict())
    assert anchor(images)[0].equal(again(images)[0])


def test_timm_stage_anchor_loads_all_weight_names(tmp_path):
    """Names of timm, of the authors, and ours."""
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
    for state, prefix in ((theirs, ''), (official, ''), (ours, 'backbone.')):
        path, file = tmp_path / 'weights.pth', dict(state_dict=state)
        loaded = build_from(path, file, config, prefix=prefix)
        assert loaded(images).tokens.equal(anchor(images).tokens)


def staged(net, stem):
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    return NetworkParts(stem, stages)


# Network, its own arguments, and how it is split.
WITHOUT_DROP_PATH = {
    'ConvMixer': (
        'convmixer_768_32',
        dict(dim=8, depth=3, kernel_size=5),  # that timm's function sets as well
        lambda net: NetworkParts(net.stem, [list(net.blocks)]),
    ),
    'RepVit': (
        'repvit_m0_9',
        dict(embed_dim=(8, 16, 16, 24), depth=(1, 2, 1, 1)),
        lambda net: staged(net, net.stem),
    ),
    'SHViT': (
        'shvit_s1',
        dict(embed_dim=(16, 32, 48), partial_dim=(4, 8, 16), depth=(1, 2, 1)),
        lambda net: staged(net, net.patch_embed),
    ),
}


@pytest.mark.parametrize('kind', WITHOUT_DROP_PATH)
def test_timm_stage_anchor_of_networks_without_drop_path(kind, monkeypatch):
    model, args, split = WITHOUT_DROP_PATH[kind]
    row = StagedFamily('TimmStageAnchor', (f'timm.{kind}',), split)
    monkeypatch.setitem(MIRRORED, f'timm.{kind}', row)
    config = dict(type='TimmStageAnchor', model=model, img_size=64, model_args=args)
    anchor = MODELS.build(config).eval()
    network = disturb(create_timm_model(model, **args)).eval()
    anchor.load_state_dict(anchor.adapt_weights(network.state_dict()), strict=False)
    images = torch.randn(1, 3, 64, 64)
    state = states_of(anchor, images)[-1]
    assert_close(state.as_map(), network.forward_features(images), rtol=0, atol=0)
    assert anchor.block_dims[-1] == args.get('dim', args.get('embed_dim', [0])[-1])
    with pytest.raises(ValueError, match=f'0.2 is invalid.*{model} has no stochastic'):
        MODELS.build(dict(config, drop_path_rate=0.2))


def test_timm_stage_anchor_family_that_docs_add(monkeypatch):
    text = (Path(__file__).parents[2] / 'docs/how_to/anchors.md').read_text()
    blocks = [part.split('```')[0] for part in text.split('```python\n')]
    (code,) = [block for block in blocks if "'timm.RegNet'" in block]
    monkeypatch.setitem(MIRRORED, 'timm.RegNet', None)
    exec(code, {})  # noqa: S102
    pair = []
    for name in ('regnetx_002', 'regnetx_004'):
        config = dict(type='TimmStageAnchor', model=name, img_size=64, model_args={})
        network, anchor = same_weights(config)
        assert_maps_equal(anchor, torch.randn(1, 3, 64, 64), network)
        pair.append(anchor)
    assert len(SNNetv1(pair, stages=(2, 3), out='end').space) == 2 + 6 + 11


@pytest.mark.parametrize('kind', [swin, levit, resnet])
def test_timm_stage_anchor_downsampling_as_own_blocks(kind):
    joined, images = disturb(MODELS.build(kind())).eval(), torch.randn(1, 3, 64, 64)
    apart = MODELS.build(kind(downsampling_blocks=True)).eval()
    apart.load_state_dict(apart.adapt_weights(joined.state_dict()))
    assert apart.adapt_weights(apart.state_dict()).keys() == apart.state_dict().keys()
    before, after = states_of(joined, images), states_of(apart, images)
    extra = kind is not resnet
    for a, b in zip(joined.stages, apart.stages, strict=True):
        assert len(b) == len(a) + extra
        for i, j in zip(a, b[extra:], strict=True):
            assert_close(before[i].tokens, after[j].tokens, rtol=1e-5, atol=1e-5)
    if extra:
        assert after[0].tokens.equal(apart.embed(images).tokens)


def test_timm_stage_anchor_lora_of_convnext(tmp_path):
    config = convnext(downsampling_blocks=True, out='end')
    (network, plain), images = same_weights(config), torch.randn(2, 3, 64, 64)
    lora = config | dict(lora=dict(rank=2, alpha=6, targets=('fc1', 'fc2')))
    for weights in (network.state_dict(), plain.state_dict()):
        anchor = build_from(tmp_path / 'weights.pth', weights, lora)
        assert anchor(images).tokens.equal(plain(images).tokens)
    trained = {k for k, p in anchor.named_parameters() if p.requires_grad}
    assert len(trained) == 7 * 2 * 2
    assert all('.mlp.fc' in k and '.lora_' in k for k in trained)
