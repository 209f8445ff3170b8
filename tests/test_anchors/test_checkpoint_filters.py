"""Weights of every family in our names: by name, and by equal outputs."""

import re

import pytest
import torch
from mmengine.registry import MODELS
from states import states_of
from torch.testing import assert_close
from weights import build_from

from snnet_mm.anchors.checkpoint_filters import to_our_names

timm = pytest.importorskip('timm')


@pytest.mark.parametrize(
    ('theirs', 'ours'),
    [
        ('blocks.11.gamma_2', 'blocks.11.ls2.gamma'),
        ('register_tokens', 'reg_token'),
        ('dist_token', 'reg_token'),
        ('layers.0.ln1.weight', 'blocks.0.norm1.weight'),
        ('layers.10.attn.gamma1.weight', 'blocks.10.ls1.gamma'),
        ('layers.1.ffn.gamma2.weight', 'blocks.1.ls2.gamma'),
        ('layers.1.ffn.layers.0.0.bias', 'blocks.1.mlp.fc1.bias'),
        ('layers.1.ffn.layers.1.bias', 'blocks.1.mlp.fc2.bias'),
        ('patch_embed.projection.bias', 'patch_embed.proj.bias'),
        ('ln1.bias', 'norm.bias'),
        ('blocks.0.attn.q_bias', 'blocks.0.attn.q_bias'),
        ('decode_head.weight', 'decode_head.weight'),
        ('head.weight', None),
        ('head_dist.bias', None),
        ('fc_norm.weight', None),
        ('pre_logits.fc.weight', None),
        ('lm_head.weight', None),
        ('mask_token', None),
        ('decoder_embed.weight', None),
        ('decoder_blocks.0.norm1.weight', None),
        ('blocks.0.attn.relative_position_index', None),
    ],
)
def test_names(theirs, ours):
    assert list(to_our_names({theirs: torch.ones(2)})) == ([ours] if ours else [])


def test_beit_bias_and_tables():
    attn = 'blocks.1.attn'
    weights = {
        f'{attn}.q_bias': torch.tensor([1.0, 2]),
        f'{attn}.v_bias': torch.tensor([3.0, 4]),
        f'{attn}.relative_position_bias_table': torch.tensor([[5.0]]),
        'rel_pos_bias.relative_position_bias_table': torch.tensor([[7.0]]),
        'blocks.0.gamma_1': torch.ones(2),
    }
    converted = to_our_names(weights)
    assert len(weights) == 5
    assert {k: v.tolist() for k, v in converted.items()} == {
        f'{attn}.qkv.bias': [1, 2, 0, 0, 3, 4],
        f'{attn}.rel_pos_bias.table': [[12]],
        'blocks.0.attn.rel_pos_bias.table': [[7]],
        'blocks.0.ls1.gamma': [1, 1],
    }


DINOV2 = dict(patch_size=14, num_registers=4, final_norm=True)
ViT = dict(pos_embed_prefix=True, layer_scale_init=None)
BEIT = dict(abs_pos_embed=False, rel_pos_bias=True)
# Arguments of timm's model and of the anchor, see docs/anchors.md.
FAMILIES = {
    'deit3_small_patch16_224': ({}, dict(final_norm=True)),
    'vit_base_patch16_224.augreg_in21k': ({}, dict(ViT, final_norm=True)),
    'vit_base_patch16_224.mae': (dict(global_pool='avg'), ViT),
    'vit_small_patch14_reg4_dinov2': (dict(img_size=224), DINOV2),
    'beitv2_base_patch16_224': ({}, BEIT),
}


@torch.no_grad()
def randomise(model):
    """Random values everywhere."""
    for name, parameter in model.named_parameters():
        flat = parameter.ndim == 1 or name.endswith(('embed', 'token', 'table'))
        parameter.normal_(std=0.5 if flat else parameter[0].numel() ** -0.5)
    model.eval()
    return model


def build(name, **options):
    """The model of timm and the arguments of our anchor for it, ``img_size`` apart."""
    theirs, ours = FAMILIES[name]
    arch = dict(embed_dims=32, depth=3, num_heads=4)
    theirs = dict(theirs, depth=3, embed_dim=32, num_heads=4, num_classes=5) | options
    if 'beit' not in name:
        theirs = dict(theirs, dynamic_img_size=True)
    return randomise(timm.create_model(name, **theirs)), dict(ours, arch=arch)


def as_published(name, model):
    """What the official file of a family holds, from timm's model of it."""
    weights = model.state_dict()
    if 'augreg' in name or 'dinov2' in name:
        return weights
    if 'deit3' in name:
        pattern = re.compile(r'\.ls([12])\.gamma$')
        weights = {pattern.sub(r'.gamma_\1', k): v for k, v in weights.items()}
        assert 'blocks.0.gamma_1' in weights
    return {'model': weights}


def load(path, checkpoint, **kwargs):
    return build_from(path, checkpoint, dict(type='PlainViT', **kwargs))


@torch.no_grad()
def assert_equal(vit, model, size):
    images = torch.randn(2, 3, *size)
    found, wanted = states_of(vit, images)[-1].tokens, model.forward_features(images)
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def resized_beit(model, name, img_size):
    """timm's BEiT at another size, its tables resized by timm's simple function."""
    other = build(name, img_size=img_size)[0]
    weights = model.state_dict()
    for key, table in weights.items():
        if key.endswith('bias_table'):
            shape = other.state_dict()[key].shape
            weights[key] = timm.layers.resize_rel_pos_bias_table_simple(
                table, other.patch_embed.grid_size, shape
            )
    other.load_state_dict(weights)
    return other


@pytest.mark.parametrize('where', ['native', 'other', 'built for other'])
@pytest.mark.parametrize('name', FAMILIES)
def test_tokens_equal_those_of_timm(name, where, tmp_path, log):
    """At the native size, on other images, or with positions resized on load."""
    theirs, kwargs = build(name)
    patch, img_size = kwargs.get('patch_size', 16), theirs.patch_embed.img_size
    size = img_size if where == 'native' else (10 * patch, 13 * patch)
    kwargs['img_size'] = size if where == 'built for other' else img_size
    ours = load(tmp_path / 'weights.pth', as_published(name, theirs), **kwargs)
    if 'beit' in name and where != 'native':
        theirs = resized_beit(theirs, name, size)
    assert_equal(ours, theirs, size)
    unloaded = MODELS.build(dict(type='PlainViT', **kwargs)).eval()
    with pytest.raises(AssertionError, match='not close'):
        assert_equal(unloaded, theirs, size)
    assert log() == []


@pytest.mark.parametrize('prefix', [False, True])
def test_official_dinov2_registers_come_after_the_embedded_cls_token(tmp_path, prefix):
    theirs, kwargs = build('vit_small_patch14_reg4_dinov2')
    official, entry = dict(theirs.state_dict()), torch.randn(1, 1, 32)
    official['register_tokens'] = official.pop('reg_token')
    official['cls_token'] = official['cls_token'] - entry
    official['pos_embed'] = torch.cat([entry, official['pos_embed']], dim=1)
    official['mask_token'] = torch.randn(1, 32)
    ours = load(tmp_path / 'a.pth', official, pos_embed_prefix=prefix, **kwargs)
    assert_equal(ours, theirs, (140, 182))


def test_beit_tables_shared_by_all_blocks(tmp_path):
    _, kwargs = build('beitv2_base_patch16_224')
    args = dict(embed_dim=32, depth=3, num_heads=4, num_classes=0, global_pool='')
    args |= dict(init_values=0.1, use_abs_pos_emb=False, use_shared_rel_pos_bias=True)
    shared = randomise(timm.models.Beit(**args))
    checkpoint = dict(module=shared.state_dict())
    ours = load(tmp_path / 'a.pth', checkpoint, **kwargs, final_norm=True)
    assert_equal(ours, shared, (224, 224))


def test_beit_in_an_anchor_with_position_embedding(tmp_path):
    """The embedding is zero, and so is the gradient of the bias of k."""
    theirs, kwargs = build('beitv2_base_patch16_224')
    kwargs |= dict(abs_pos_embed=True)
    ours = load(tmp_path / 'a.pth', as_published('beit', theirs), **kwargs)
    assert not ours.pos_embed.any()
    assert_equal(ours, theirs, (224, 224))
    images = torch.randn(2, 3, 224, 224, dtype=torch.float64)
    ours.double()(images)[0].square().mean().backward()
    for block in ours.blocks:
        q, k, v = block.attn.qkv.bias.grad.chunk(3)
        assert min(q.abs().max(), v.abs().max()) > 1e-4
        assert k.abs().max() < 1e-12


def test_distilled_deit_has_a_register(tmp_path):
    arch = dict(embed_dim=32, depth=2, num_heads=4, dynamic_img_size=True)
    theirs = randomise(timm.create_model('deit_tiny_distilled_patch16_224', **arch))
    kwargs = dict(ViT, arch=dict(embed_dims=32, depth=2, num_heads=4), num_registers=1)
    ours = load(tmp_path / 'a.pth', theirs.state_dict(), final_norm=True, **kwargs)
    assert_equal(ours, theirs, (160, 208))


def test_weights_of_mmpretrain(tmp_path):
    backbones = pytest.importorskip('mmpretrain.models.backbones')
    arch = dict(embed_dims=32, num_heads=4)
    theirs = randomise(
        backbones.VisionTransformer(
            dict(arch, num_layers=2, feedforward_channels=128),
            img_size=224,
            layer_scale_init_value=1e-5,
            out_type='raw',
        )
    )
    weights = {f'backbone.{k}': v for k, v in theirs.state_dict().items()}
    weights['head.fc.weight'] = torch.randn(5, 32)
    config = dict(type='PlainViT', arch=dict(arch, depth=2), pos_embed_prefix=True)
    state, path = dict(state_dict=weights), tmp_path / 'a.pth'
    ours = build_from(path, state, dict(config, final_norm=True), prefix='backbone')
    theirs.forward_features = lambda images: theirs(images)[0]
    assert_equal(ours, theirs, (224, 224))
