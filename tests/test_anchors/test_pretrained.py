"""Weights from anywhere into any module, or a reason why not."""

import sys
from functools import partial

import pytest
import timm
import torch
from malicious import Malicious
from narrow_timm import DINOV2, NARROW, anchor_of, timm_of
from weights import load

from snnet_mm.anchors import PlainViT, TimmAnchor
from snnet_mm.utils import timm_models

KEY = 'init_cfg.checkpoint'
TABLES = dict(num_registers=1, rel_pos_bias=True)
BARE = {'backbone.cls_token': torch.ones(2)}


@pytest.fixture
def save(tmp_path):
    def save(checkpoint):
        torch.save(checkpoint, tmp_path / 'weights.pth')
        return str(tmp_path / 'weights.pth')

    return save


def assert_same(module, weights):
    assert all(v.equal(weights[k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize(
    ('wrapping', 'prefix'),
    [('bare', ''), ('state_dict', 'backbone.anchors.1.'), ('module', '')],
)
def test_load_into_takes_our_own_weights(build_vit, save, log, wrapping, prefix):
    """Alone, or inside of a model with others."""
    weights = build_vit(**TABLES).state_dict()
    checkpoint = {f'{prefix}{k}': v for k, v in weights.items()}
    if prefix:
        others = build_vit(12).state_dict().items()
        checkpoint |= {f'backbone.anchors.0.{k}': v for k, v in others}
    path = save(checkpoint if wrapping == 'bare' else {wrapping: checkpoint})
    # The last dot may be left out.
    assert_same(load(build_vit(**TABLES), path, prefix=prefix[:-1]), weights)
    assert log() == []


def test_load_into_logs_missing_and_unexpected_keys(build_vit, save, log):
    """As in the authors' anchors, whose DeiT3 weights have no tables (SN-Netv2)."""
    plain, images = build_vit(), torch.randn(1, 3, 32, 32)
    path = save(plain.state_dict() | {'norm_pre.weight': torch.randn(8)})
    arch = dict(embed_dims=8, depth=3, num_heads=2)
    vit = load(PlainViT(arch, 32, 8, rel_pos_bias=True, final_norm=True), path)
    tables = [k for k in vit.state_dict() if 'table' in k]
    assert log() == [
        f'{path}: missing keys {[*tables, "norm.weight", "norm.bias"]}',
        f"{path}: unexpected keys ['norm_pre.weight']",
    ]
    vit.norm = torch.nn.Identity()
    torch.testing.assert_close(vit(images), plain(images))


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(embed_dims=12), r'cls_token .*\(1, 1, 12\), .*\(1, 1, 8\)'),
        (dict(depth=2), 'lacks blocks.2.norm1.weight'),
        (dict(img_size=(24, 40)), 'pos_embed .* 15 .* 4x4'),
        (dict(cls_token=False, num_registers=0), 'table has 0 .* 3 .*: cls_token'),
        (dict(lora=dict(rank=2)), 'has blocks.0.attn.qkv.lora_A'),
        (dict(layer_scale_init=None), 'lacks blocks.0.ls1.gamma and 2'),
    ],
)
def test_load_into_other_geometries_raise(build_vit, save, kwargs, message):
    path = save(build_vit(**(TABLES | kwargs)).state_dict())
    vit = build_vit(**TABLES)
    before = {k: v.clone() for k, v in vit.state_dict().items()}
    with pytest.raises(ValueError, match=f'{path} .*{message}.*{KEY}'):
        load(vit, path)
    assert_same(vit, before)


def test_pretrained_options_or_other_initialisers(build_vit, save):
    """``init_cfg`` is one ``Pretrained``, or any initialisers."""
    weights, vit = build_vit().state_dict(), build_vit()
    pretrained = dict(type='Pretrained', checkpoint=save(weights))
    other = dict(type='Constant', layer='Linear', val=0.5)
    vit.init_cfg = [pretrained]
    vit.init_weights()
    assert_same(vit, weights)
    for wrong in ([pretrained, other], dict(pretrained, map_location='cpu')):
        vit.init_cfg = wrong
        with pytest.raises(ValueError, match='init_cfg=.* is invalid'):
            vit.init_weights()
    vit = build_vit()
    vit.init_cfg = [other]
    vit.init_weights()
    assert (vit.blocks[0].attn.qkv.weight == 0.5).all()


@pytest.mark.parametrize(
    ('checkpoint', 'prefix', 'message'),
    [
        ('absent.pth', '', 'absent.pth does not exist'),
        ('s3://bucket/a.pth', '', 'timm://, http://'),
        (dict(epoch=3, net=dict(a=torch.ones(1))), '', r"only \['epoch', 'net'\]"),
        (BARE, '', r"\['backbone.cls_token'\]"),
        (BARE, 'net', r"prefix='net.*'backbone'"),
        (dict(model=BARE, args=Malicious(print)), '', '--trust-checkpoint '),
    ],
)
def test_read_weights_of_no_checkpoint_raises(
    build_vit, save, checkpoint, prefix, message
):
    path = checkpoint if isinstance(checkpoint, str) else save(checkpoint)
    with pytest.raises(ValueError, match=f'{message}.*{KEY}'):
        load(build_vit(), path, prefix=prefix)


def test_read_weights_fetches_timm_models_by_name(build_vit, monkeypatch, randomise):
    name, args = 'deit3_small_patch16_224', dict(embed_dim=8, depth=3, num_heads=2)
    model, asked = randomise(timm.create_model(name, num_classes=7, **args)), []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        if len(asked) > 1:
            raise OSError('no route to host')
        return model

    monkeypatch.setattr(timm, 'create_model', create_model)
    vit = build_vit(img_size=224, patch_size=16, final_norm=True)
    assert_same(load(vit, f'timm://{name}'), model.state_dict())
    assert asked == [(name, True)]
    with pytest.raises(ValueError, match=f'no route to host.*{KEY}'):
        load(vit, f'timm://{name}')
    monkeypatch.setitem(sys.modules, 'timm', None)
    with pytest.raises(ImportError, match='install timm'):
        load(vit, f'timm://{name}')


def test_timm_anchor_loads_weights_of_timm(save, log, monkeypatch):
    """By name and from a file, with positions for another size; ours."""
    source = timm_of(DINOV2, anchor_of(DINOV2, img_size=56))
    path = save(source.state_dict())
    build = partial(TimmAnchor, DINOV2, img_size=(70, 56), model_args=NARROW)
    fetched, overlay = build(pretrained=True), dict(file=path)
    named = timm.create_model
    narrow = partial(named, img_size=56, pretrained_cfg_overlay=overlay, **NARROW)
    monkeypatch.setattr(timm, 'create_model', narrow)
    read = build(init_cfg=dict(type='Pretrained', checkpoint=path))
    source.set_input_size((70, 56))
    for anchor in (fetched, read):
        timm_models._log_once.cache_clear()
        anchor.init_weights()
        assert_same(anchor.vit, source.state_dict())
    told = [text for text in log(0) if 'licence apache-2.0' in text]
    assert len(told) == 2
    assert all('mean [123.675, 116.28, 103.53]' in text for text in told)
    path = save(dict(state_dict=read.state_dict()))
    for prefix in ('', 'vit'):
        assert_same(load(build(), path, prefix=prefix), read.state_dict())


@pytest.mark.parametrize(
    ('name', 'argument'),
    [(DINOV2, 'reg_tokens'), ('vit_small_patch16_dinov3', 'num_reg_tokens')],
)
def test_timm_anchor_with_other_registers_than_its_weights(save, name, argument):
    path, side = save(anchor_of(name).state_dict()), 16 if 'dinov3' in name else 14
    args = dict(NARROW, rope_rescale_coords=2) if 'dinov3' in name else NARROW
    for number in (0, 2):
        anchor = TimmAnchor(name, img_size=side, model_args={**args, argument: number})
        with pytest.raises(ValueError, match=f'reg_tokens={number} .*expected 4'):
            load(anchor, path)


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        (dict(swiglu_mlp=True), r'blocks.0.mlp.fc1.weight has shape \(128, 32\)'),
        (dict(qk_norm=True), 'lacks vit.blocks.0.attn.q_norm.weight'),
        (dict(scale_attn_inner=True), 'lacks vit.blocks.0.attn.norm.weight'),
        (dict(use_post_norm=True), 'has vit.blocks.0.gamma_1'),
        (dict(class_token=False), 'class_token=False .*expected True'),
    ],
)
def test_timm_anchor_with_other_blocks_than_its_weights(save, args, message):
    name = 'vit_small_patch16_dinov3'
    path = save(anchor_of(name).state_dict())
    anchor = TimmAnchor(name, img_size=32, model_args=NARROW | args)
    with pytest.raises(ValueError, match=f'{message}.*init_cfg.checkpoint, model_args'):
        load(anchor, path)


def test_plain_vit_with_other_registers_than_its_weights(build_vit, save):
    path = save(build_vit(num_registers=4).state_dict())
    for number in (0, 2):
        with pytest.raises(ValueError, match=f'num_registers={number} .*expected 4'):
            load(build_vit(num_registers=number), path)
    whole = load(build_vit(num_registers=4), path)
    bare = {k: v for k, v in whole.state_dict().items() if k != 'reg_token'}
    assert load(build_vit(num_registers=2), save(bare)).num_prefix == 3
