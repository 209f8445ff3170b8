"""Weights of every family in our names and for our grid: by equal outputs."""

import re

import pytest
import timm
import torch
import torch.nn.functional as F
from config_models import load as load_config
from mmengine.registry import MODELS
from staged_anchors import disturb
from states import states_of
from torch.testing import assert_close
from weights import build_from

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.checkpoint_filters import fit_pos_embed, to_our_names
from snnet_mm.models import find_stitched_backbone

LEFT_OUT = 'head.weight', 'head_dist.bias', 'fc_norm.weight', 'pre_logits.fc.weight'
LEFT_OUT += 'lm_head.weight', 'mask_token', 'decoder_embed.weight', 'decoder_pos_embed'
LEFT_OUT += 'decoder_blocks.0.norm1.bias', 'blocks.0.attn.relative_position_index'
ARCH = dict(embed_dims=32, depth=3, num_heads=4)
DINOV2 = dict(patch_size=14, num_registers=4, final_norm=True)
ViT = dict(pos_embed_prefix=True, layer_scale_init=None)
BEIT = dict(abs_pos_embed=False, rel_pos_bias=True)
NO_BIAS = dict(qkv_bias=False, layer_scale_init=None, final_norm=True)
NO_CLS = dict(class_token=False, global_pool='', qkv_bias=False)
REGISTERS = dict(ViT, num_registers=2, final_norm=True)
# Arguments of timm's model and of the anchor, see docs/how_to/anchors.md.
FAMILIES = {
    'deit3_small_patch16_224': ({}, dict(final_norm=True)),
    'vit_base_patch16_224.augreg_in21k': ({}, dict(ViT, final_norm=True)),
    'vit_base_patch16_224.mae': (dict(global_pool='avg'), ViT),
    'vit_small_patch14_reg4_dinov2': (dict(img_size=224), DINOV2),
    'beitv2_base_patch16_224': ({}, BEIT),
    # No cls token and no biases; registers with entries in the embedding.
    'vit_small_patch16_224': (NO_CLS, dict(NO_BIAS, cls_token=False)),
    'vit_base_patch32_224': (dict(reg_tokens=2, patch_size=16), REGISTERS),
    # The token of distillation is a register.
    'deit_tiny_distilled_patch16_224': ({}, dict(REGISTERS, num_registers=1)),
}


def test_to_our_names_leaves_out_classifiers_and_decoders():
    kept = 'blocks.0.attn.q_bias', 'decode_head.weight', 'norm.weight'
    weights = dict.fromkeys((*LEFT_OUT, *kept), torch.ones(2))
    assert tuple(to_our_names(weights)) == kept


def build(name, **options):
    """The model of timm and the arguments of our anchor for it, ``img_size`` apart."""
    theirs, ours = FAMILIES[name]
    args = dict(theirs, depth=3, embed_dim=32, num_heads=4, num_classes=5) | options
    if 'beit' not in name:
        args['dynamic_img_size'] = True
    ours = dict(ours, type='PlainViT', arch=ARCH, pos_embed_antialias=True)  # as timm
    return disturb(timm.create_model(name, **args)).eval(), ours


def as_published(name, weights):
    """What the official file of a family holds, from weights of timm."""
    if name.startswith('vit'):
        return weights
    if 'deit3' in name:
        pattern = re.compile(r'\.ls([12])\.gamma$')
        weights = {pattern.sub(r'.gamma_\1', k): v for k, v in weights.items()}
    return {'model': weights}


def resize_tables(weights, model):
    """Weights of a BEiT with its tables resized for another, by timm's function."""
    resize, own = timm.layers.resize_rel_pos_bias_table_simple, model.state_dict()
    grid = model.patch_embed.grid_size
    return {
        k: resize(v, grid, own[k].shape) if k.endswith('bias_table') else v
        for k, v in weights.items()
    }


@torch.no_grad()
def assert_equal(vit, model, size=(224, 224)):
    images = torch.randn(2, 3, *size)
    found, wanted = states_of(vit, images)[-1].tokens, model.forward_features(images)
    assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('where', ['other', 'built for other'])
@pytest.mark.parametrize('name', FAMILIES)
def test_checkpoint_filters_tokens_equal_timm(name, where, tmp_path, log):
    """On images of another size, or with positions resized on load."""
    theirs, ours = build(name)
    patch, img_size = ours.get('patch_size', 16), theirs.patch_embed.img_size
    size = 10 * patch, 13 * patch
    ours['img_size'] = size if where == 'built for other' else img_size
    published = as_published(name, theirs.state_dict())
    vit = build_from(tmp_path / 'weights.pth', published, ours)
    if 'beit' in name:
        other = build(name, img_size=size)[0]
        other.load_state_dict(resize_tables(theirs.state_dict(), other))
        theirs = other
    assert_equal(vit, theirs, size)
    with pytest.raises(AssertionError, match='not close'):
        assert_equal(MODELS.build(ours).eval(), theirs, size)
    assert log() == []


@pytest.mark.parametrize('name', [n for n in FAMILIES if 'augreg' in n or 'mae' in n])
def test_checkpoint_filters_layer_scale_of_one_is_added(name, tmp_path):
    theirs, ours = build(name)
    ours |= dict(img_size=224, layer_scale_init=1)
    vit = build_from(tmp_path / 'weights.pth', theirs.state_dict(), ours)
    assert_equal(vit, theirs)
    factors = [p for k, p in vit.named_parameters() if k.endswith('.gamma')]
    assert len(factors) == 6
    assert all((p == 1).all() and p.requires_grad for p in factors)
    ours['layer_scale_init'] = 0.5
    with pytest.raises(ValueError, match='lacks blocks.0.ls1.gamma'):
        build_from(tmp_path / 'weights.pth', theirs.state_dict(), ours)


def test_checkpoint_filters_positions_are_added_to_beitv2(tmp_path):
    theirs, ours = build('beitv2_base_patch16_224')
    ours |= dict(img_size=224, abs_pos_embed=True, pos_embed_prefix=True)
    ours['layer_scale_init'] = 1
    weights = theirs.state_dict()
    vit = build_from(tmp_path / 'weights.pth', as_published('beitv2', weights), ours)
    assert_equal(vit, theirs)
    assert vit.pos_embed.shape == (1, 197, 32)
    assert not vit.pos_embed.any()
    assert vit.pos_embed.requires_grad
    assert_close(vit.blocks[2].ls1.gamma, weights['blocks.2.gamma_1'])


@pytest.mark.parametrize('prefix', [False, True])
def test_checkpoint_filters_official_dinov2_registers(tmp_path, prefix):
    """Registers come after the embedded cls token."""
    theirs, ours = build('vit_small_patch14_reg4_dinov2')
    official, entry = dict(theirs.state_dict()), torch.randn(1, 1, 32)
    official['register_tokens'] = official.pop('reg_token')
    official['cls_token'] = official['cls_token'] - entry
    official['pos_embed'] = torch.cat([entry, official['pos_embed']], dim=1)
    ours['pos_embed_prefix'] = prefix
    assert_equal(build_from(tmp_path / 'a.pth', official, ours), theirs, (140, 182))


@pytest.mark.parametrize('own', [False, True])
def test_checkpoint_filters_beit_tables_shared_by_blocks(tmp_path, own):
    _, ours = build('beitv2_base_patch16_224')
    args = dict(embed_dim=32, depth=3, num_heads=4, num_classes=0, global_pool='')
    args |= dict(init_values=0.1, use_abs_pos_emb=False, use_shared_rel_pos_bias=True)
    # Blocks may have tables of their own, too.
    shared = disturb(timm.models.Beit(**args, use_rel_pos_bias=own)).eval()
    file = dict(module=shared.state_dict())
    assert_equal(
        build_from(tmp_path / 'a.pth', file, dict(ours, final_norm=True)), shared
    )


def test_fit_pos_embed_resamples_given_grid_as_forward():
    """Without antialiasing; timm's, above, are antialiased."""
    loaded = dict(cls_token=torch.randn(1, 1, 4), pos_embed=torch.randn(1, 16, 4))
    fitted = fit_pos_embed(loaded, (4, 4), 0, (2, 8))['pos_embed']
    image = loaded['pos_embed'][0].T.reshape(1, 4, 2, 8)
    image = F.interpolate(image, size=(4, 4), mode='bicubic')
    assert_close(fitted[0], image[0].flatten(1).T)
    arch = dict(embed_dims=4, depth=1, num_heads=1)
    anchor = PlainViT(arch, img_size=(2, 8), patch_size=1)
    anchor.pos_embed.data = loaded['pos_embed']
    assert torch.equal(anchor.positions((4, 4)), fitted)
    with pytest.raises(ValueError, match='3x8.*init_cfg.img_size'):
        fit_pos_embed(loaded, (4, 4), 0, loaded_grid=(3, 8))


SETR = 'setr/setr-naive_snnetv2-{}_8xb2-80k_coco-stuff10k-512x512.py'
DEIT = 'imagenet/snnetv1-deit-ti-s-b_8xb128-50e_in1k-224x224.py'
ESTA = 'esta/fgvc/snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py'
# Configs with the models of timm that have the shapes of their files.
FILES = {
    SETR.format('deit3-s-l'): ('deit3_small_patch16_224', 'deit3_large_patch16_224'),
    SETR.format('deit3-b-l'): ('deit3_base_patch16_224', 'deit3_large_patch16_224'),
    SETR.format('mae-b-l'): ('vit_base_patch16_224', 'vit_large_patch16_224'),
    SETR.format('augreg-b-l'): ('vit_base_patch16_384', 'vit_large_patch16_384'),
    SETR.format('beitv2-b-l'): ('beitv2_base_patch16_224', 'beitv2_large_patch16_224'),
    SETR.format('sam-b-l'): ('samvit_base_patch16', 'samvit_large_patch16'),
    DEIT: [f'deit_{size}_patch16_224' for size in ('tiny', 'small', 'base')],
    ESTA: [f'vit_{size}_patch16_224' for size in ('tiny', 'small', 'base')],
}


@pytest.mark.slow
@pytest.mark.parametrize('config', FILES)
def test_checkpoint_filters_fit_files_of_configs(config):
    """Files of configs fit by names and shapes."""
    anchors = find_stitched_backbone(load_config(config)[1]).anchors
    for anchor, name in zip(anchors, FILES[config], strict=True):
        with torch.device('meta'):
            shapes = timm.create_model(name).state_dict()
        # Tensors of no memory.
        file = {k: torch.zeros(()).expand(v.shape) for k, v in shapes.items()}
        if 'samvit' in name:
            file = {re.sub(r'mlp\.fc(\d)', r'mlp.lin\1', k): v for k, v in file.items()}
        file = as_published(name, file)
        found, own = anchor.adapt_weights(file.get('model', file)), anchor.state_dict()
        lacking = own.keys() - found.keys()
        assert all('rel_pos_bias' in k or '.lora_' in k for k in lacking), lacking
        left = found.keys() - own.keys()
        assert all(k.startswith(('norm.', 'fc_norm.', 'neck.')) for k in left), left
        both = found.keys() & own.keys()
        assert both >= {'patch_embed.proj.weight', 'blocks.0.attn.qkv.weight'}
        assert all(found[k].shape == own[k].shape for k in both)
