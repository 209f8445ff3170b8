import logging
import re

import pytest
import torch
from mmengine.logging import MMLogger
from states import states_of

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.position import relative_position_index

timm = pytest.importorskip('timm')

ViT = dict(pos_embed_prefix=True, layer_scale_init=None)
BEIT = dict(abs_pos_embed=False, rel_pos_bias=True)
# Arguments of timm's model and of the anchor, see docs/anchors.md.
FAMILIES = {
    'deit3_small_patch16_224': (dict(depth=3), dict(final_norm=True)),
    'deit3_large_patch16_224': (dict(depth=6), dict(final_norm=True)),
    'vit_base_patch16_224.augreg_in21k': (dict(depth=3), dict(ViT, final_norm=True)),
    'vit_base_patch16_224.mae': (dict(depth=3, global_pool='avg'), ViT),
    'vit_small_patch14_reg4_dinov2': (
        dict(depth=3, img_size=224),
        dict(patch_size=14, num_registers=4, final_norm=True),
    ),
    'beitv2_base_patch16_224': (dict(depth=3), BEIT),
}
FULL = {
    'deit3_small_patch16_224': ('small', {}),
    'deit3_large_patch16_224': ('large', {}),
    'vit_base_patch16_224.augreg_in21k': ('base', {}),
    'vit_base_patch16_224.mae': ('base', dict(global_pool='avg')),
    'vit_small_patch14_reg4_dinov2': ('small', dict(img_size=518)),
    'beitv2_base_patch16_224': ('base', {}),
}


@pytest.fixture
def log(caplog):
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@torch.no_grad()
def randomise(model):
    """Random values everywhere, of a size that keeps a full-size network tame."""
    for name, parameter in model.named_parameters():
        flat = parameter.ndim == 1 or name.endswith(('embed', 'token', 'table'))
        parameter.normal_(std=0.5 if flat else parameter[0].numel() ** -0.5)
    model.eval()
    return model


def build(name, img_size=None, full=False):
    """The model of timm and the arguments of our anchor for it, ``img_size`` apart."""
    theirs, ours = FAMILIES[name]
    if full:
        arch, theirs = FULL[name]
    else:
        arch = dict(embed_dims=32, depth=theirs['depth'], num_heads=4)
        theirs = dict(theirs, embed_dim=32, num_heads=4, num_classes=5)
    if 'beit' not in name:
        theirs = dict(theirs, dynamic_img_size=True)
    if img_size is not None:
        theirs = dict(theirs, img_size=img_size)
    return randomise(timm.create_model(name, **theirs)), dict(ours, arch=arch)


def as_published(name, model):
    """What the official file of a family holds, from timm's model of it."""
    weights = model.state_dict()
    if 'augreg' in name or 'dinov2' in name:
        return weights
    if 'deit3' in name:
        weights = {
            re.sub(r'\.ls([12])\.gamma$', r'.gamma_\1', k): v
            for k, v in weights.items()
        }
        assert 'blocks.0.gamma_1' in weights
    if 'beit' in name:
        index = relative_position_index(model.patch_embed.grid_size, 1)
        for i in range(len(model.blocks)):
            weights[f'blocks.{i}.attn.relative_position_index'] = index
        assert 'blocks.0.attn.q_bias' in weights
        assert 'blocks.0.attn.qkv.bias' not in weights
    return {'model': weights}


def load(path, checkpoint, **kwargs):
    torch.save(checkpoint, path)
    init_cfg = dict(type='Pretrained', checkpoint=str(path))
    vit = PlainViT(**kwargs, init_cfg=init_cfg).eval()
    vit.init_weights()
    # A full-size one has 1.2 GB, and pytest keeps the folders of several runs.
    path.unlink()
    return vit


def resized_beit(model, name, img_size, full):
    """timm's BEiT at another size, its tables resized by timm's simple function."""
    other = build(name, img_size, full)[0]
    weights = model.state_dict()
    for key, table in weights.items():
        if key.endswith('bias_table'):
            shape = other.state_dict()[key].shape
            weights[key] = timm.layers.resize_rel_pos_bias_table_simple(
                table, other.patch_embed.grid_size, shape
            )
    other.load_state_dict(weights)
    return other


@torch.no_grad()
def tokens_of(vit, images):
    return states_of(vit, images)[-1].tokens


@torch.no_grad()
def difference(name, path, where, full):
    """Tokens of ours and timm's on the same images.

    Args:
        where: At the ``'native'`` size, on ``'other'`` images, or those with an anchor
            built for their size, so that position embeddings are resized on load.
    """
    theirs, kwargs = build(name, full=full)
    patch, img_size = kwargs.get('patch_size', 16), theirs.patch_embed.img_size
    size = img_size if where == 'native' else (10 * patch, 13 * patch)
    kwargs['img_size'] = size if where == 'built for other' else img_size
    ours = load(path, as_published(name, theirs), **kwargs)
    if 'beit' in name and where != 'native':
        theirs = resized_beit(theirs, name, size, full)
    images = torch.randn(1 if full else 2, 3, *size)
    expected = theirs.forward_features(images)
    unloaded = tokens_of(PlainViT(**kwargs).eval(), images)
    assert (unloaded - expected).abs().max() > 0.5
    return tokens_of(ours, images), expected


@pytest.mark.parametrize(
    'full', [False, pytest.param(True, marks=pytest.mark.slow, id='full size')]
)
@pytest.mark.parametrize('where', ['native', 'other', 'built for other'])
@pytest.mark.parametrize('name', FAMILIES)
def test_tokens_equal_those_of_timm(name, where, full, tmp_path, log):
    ours, expected = difference(name, tmp_path / 'weights.pth', where, full)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
    assert [r for r in log.records if r.levelno >= logging.WARNING] == []


def test_without_final_norm_the_last_block_is_left_as_it_is(tmp_path):
    theirs, kwargs = build('deit3_small_patch16_224')
    kwargs['final_norm'] = False
    ours = load(tmp_path / 'a.pth', as_published('deit3', theirs), **kwargs)
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        patches = theirs.forward_intermediates(
            images, [2], norm=False, output_fmt='NLC', intermediates_only=True
        )[0]
    torch.testing.assert_close(
        tokens_of(ours, images)[:, 1:], patches, rtol=1e-5, atol=1e-5
    )


def test_official_dinov2_registers_are_behind_the_embedded_cls_token(tmp_path):
    theirs, kwargs = build('vit_small_patch14_reg4_dinov2')
    official = theirs.state_dict()
    entry = torch.randn(1, 1, 32)
    official['register_tokens'] = official.pop('reg_token')
    official['cls_token'] = official['cls_token'] - entry
    official['pos_embed'] = torch.cat([entry, official['pos_embed']], dim=1)
    official['mask_token'] = torch.randn(1, 32)
    images = torch.randn(2, 3, 140, 182)
    with torch.no_grad():
        expected = theirs.forward_features(images)
    for prefix in (False, True):
        ours = load(tmp_path / 'a.pth', official, pos_embed_prefix=prefix, **kwargs)
        torch.testing.assert_close(
            tokens_of(ours, images), expected, rtol=1e-5, atol=1e-5
        )


def test_beit_tables_shared_by_all_blocks(tmp_path):
    _, kwargs = build('beitv2_base_patch16_224')
    shared = randomise(
        timm.models.Beit(
            embed_dim=32,
            depth=3,
            num_heads=4,
            init_values=0.1,
            use_abs_pos_emb=False,
            use_shared_rel_pos_bias=True,
            num_classes=0,
            global_pool='',
        )
    )
    checkpoint = dict(module=shared.state_dict())
    ours = load(tmp_path / 'a.pth', checkpoint, **kwargs, final_norm=True)
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected = shared.forward_features(images)
    torch.testing.assert_close(tokens_of(ours, images), expected, rtol=1e-5, atol=1e-5)


def test_beit_in_an_anchor_with_position_embedding_sets_it_to_zero(tmp_path):
    theirs, kwargs = build('beitv2_base_patch16_224')
    kwargs |= dict(abs_pos_embed=True)
    ours = load(tmp_path / 'a.pth', as_published('beit', theirs), **kwargs)
    assert not ours.pos_embed.any()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected = theirs.forward_features(images)
    torch.testing.assert_close(tokens_of(ours, images), expected, rtol=1e-5, atol=1e-5)


def test_the_bias_of_k_gets_no_gradient(tmp_path):
    theirs, kwargs = build('beitv2_base_patch16_224')
    ours = load(tmp_path / 'a.pth', as_published('beit', theirs), **kwargs).double()
    images = torch.randn(2, 3, 224, 224, dtype=torch.float64)
    ours(images)[0].square().mean().backward()
    for block in ours.blocks:
        q, k, v = block.attn.qkv.bias.grad.chunk(3)
        assert min(q.abs().max(), v.abs().max()) > 1e-4
        assert k.abs().max() < 1e-12


def test_distilled_deit_has_a_register(tmp_path):
    theirs = randomise(
        timm.create_model(
            'deit_tiny_distilled_patch16_224',
            embed_dim=32,
            depth=2,
            num_heads=4,
            dynamic_img_size=True,
        )
    )
    kwargs = dict(ViT, arch=dict(embed_dims=32, depth=2, num_heads=4), num_registers=1)
    ours = load(tmp_path / 'a.pth', theirs.state_dict(), final_norm=True, **kwargs)
    images = torch.randn(2, 3, 160, 208)
    with torch.no_grad():
        expected = theirs.forward_features(images)
    torch.testing.assert_close(tokens_of(ours, images), expected, rtol=1e-5, atol=1e-5)


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
    path = tmp_path / 'a.pth'
    torch.save(dict(state_dict=weights), path)
    init_cfg = dict(type='Pretrained', checkpoint=str(path), prefix='backbone')
    ours = PlainViT(
        dict(arch, depth=2), final_norm=True, pos_embed_prefix=True, init_cfg=init_cfg
    ).eval()
    ours.init_weights()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected = theirs(images)[0]
    torch.testing.assert_close(tokens_of(ours, images), expected, rtol=1e-5, atol=1e-5)
