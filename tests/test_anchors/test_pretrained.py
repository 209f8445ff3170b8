"""Weights from anywhere into any module, or a reason why not."""

import sys
from functools import partial
from pathlib import Path

import pytest
import timm
import torch
from malicious import Malicious
from narrow_timm import DINOV2, NARROW, anchor_of, timm_of
from weights import load

from snnet_mm.anchors import PlainViT, TimmAnchor
from snnet_mm.utils import (
    UntrustedCheckpointError,
    guard_checkpoints,
    timm_models,
)

KEY = r'\(config key: init_cfg\.checkpoint'


@pytest.fixture
def save(tmp_path):
    def save(checkpoint, name='weights.pth'):
        torch.save(checkpoint, tmp_path / name)
        return str(tmp_path / name)

    return save


def assert_same(module, weights):
    assert all(v.equal(weights[k]) for k, v in module.state_dict().items())


@pytest.mark.parametrize(
    ('wrapping', 'prefix'),
    [('bare', ''), ('state_dict', 'backbone.anchors.1.'), ('module', '')],
)
def test_our_own_weights(build_vit, save, log, wrapping, prefix):
    """Alone, or inside of a model with others."""
    kwargs = dict(num_registers=2, rel_pos_bias=True, final_norm=True)
    weights = build_vit(**kwargs).state_dict()
    checkpoint = {f'{prefix}{k}': v for k, v in weights.items()}
    if prefix:
        others = build_vit(12).state_dict().items()
        checkpoint |= {f'backbone.anchors.0.{k}': v for k, v in others}
        checkpoint['decode_head.conv_seg.weight'] = torch.randn(3)
    path = save(checkpoint if wrapping == 'bare' else {wrapping: checkpoint})
    # The last dot may be left out.
    assert_same(load(build_vit(**kwargs), path, prefix=prefix[:-1]), weights)
    assert log() == []


def test_bias_tables_that_weights_lack_change_nothing(build_vit, save):
    """As in the authors' anchors, whose DeiT3 weights have none (SN-Netv2)."""
    plain, images = build_vit(), torch.randn(1, 3, 32, 32)
    arch = dict(embed_dims=8, depth=3, num_heads=2)
    vit = PlainViT(arch=arch, img_size=32, patch_size=8, rel_pos_bias=True)
    load(vit, save(plain.state_dict()))
    torch.testing.assert_close(vit(images), plain(images))
    assert vit.get_parameter('blocks.0.attn.rel_pos_bias.table').requires_grad


def test_missing_and_unexpected_keys_are_logged_by_name(build_vit, save, log):
    weights = build_vit().state_dict()
    weights['norm_pre.weight'] = torch.randn(8)
    vit = build_vit(rel_pos_bias=True, final_norm=True)
    tables, path = [k for k in vit.state_dict() if 'table' in k], save(weights)
    load(vit, path)
    assert log() == [
        f'{path}: missing keys {[*tables, "norm.weight", "norm.bias"]}',
        f"{path}: unexpected keys ['norm_pre.weight']",
    ]


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(embed_dims=12), r'has shape \(1, 1, 12\), expected \(1, 1, 8\)'),
        (dict(depth=2), 'it lacks blocks.2.norm1.weight and 0 others'),
        (dict(img_size=(24, 40)), 'pos_embed with 15 entries fits neither 4x4 patches'),
        (dict(cls_token=False, num_registers=0), 'table has 0 rows .* anchor has 3'),
        (dict(lora=dict(rank=2)), 'it has blocks.0.attn.qkv.lora_A'),
        (dict(layer_scale_init=None), "layer_scale_init='a number' is invalid"),
    ],
)
def test_other_geometries_are_refused(build_vit, save, kwargs, message):
    common = dict(rel_pos_bias=True, num_registers=1)
    path, vit = save(build_vit(**(common | kwargs)).state_dict()), build_vit(**common)
    before = {k: v.clone() for k, v in vit.state_dict().items()}
    with pytest.raises(ValueError, match=message + '.*' + KEY) as error:
        load(vit, path)
    assert str(error.value).startswith(f'checkpoint {path} does not fit: ')
    assert_same(vit, before)


def test_trust_reaches_weights_of_anchors(build_vit, save, tmp_path):
    weights, trace = build_vit().state_dict(), tmp_path / 'it_ran'
    path = save(dict(model=weights, args=Malicious(Path.touch, trace)))
    words = f'{path} .*nothing of it .*--trust-checkpoint .*config key: init_cfg.check'
    with guard_checkpoints(), pytest.raises(UntrustedCheckpointError, match=words):
        load(build_vit(), path)
    assert not trace.exists()
    vit = build_vit()
    with guard_checkpoints(trust=True):
        load(vit, path)
    assert_same(vit, weights)
    assert trace.exists()
    with pytest.raises(UntrustedCheckpointError):
        load(build_vit(), path)


def test_init_cfg_is_one_pretrained_or_any_initialisers(build_vit, save):
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
        ({'backbone.cls_token': torch.ones(2)}, '', r"\['backbone.cls_token'\]"),
        ({'backbone.cls_token': torch.ones(2)}, 'net', r"prefix='net.*'backbone'"),
    ],
)
def test_what_is_no_checkpoint(build_vit, save, checkpoint, prefix, message):
    path = checkpoint if isinstance(checkpoint, str) else save(checkpoint)
    with pytest.raises(ValueError, match=message + '.*' + KEY):
        load(build_vit(), path, prefix=prefix)


def test_timm_models_by_name(build_vit, monkeypatch, randomise):
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
    with pytest.raises(ValueError, match='cannot be fetched: no route to host.*' + KEY):
        load(vit, f'timm://{name}')
    monkeypatch.setitem(sys.modules, 'timm', None)
    with pytest.raises(ImportError, match='needs timm.*install timm or name a file'):
        load(vit, f'timm://{name}')


def test_weights_of_timm_are_loaded(save, log, monkeypatch):
    source = timm_of(DINOV2, anchor_of(DINOV2, img_size=56))
    path = save(source.state_dict())
    narrow = partial(
        timm.create_model, img_size=56, pretrained_cfg_overlay=dict(file=path), **NARROW
    )
    fetched = TimmAnchor(DINOV2, True, (70, 56), NARROW)
    monkeypatch.setattr(timm, 'create_model', narrow)
    init_cfg = dict(type='Pretrained', checkpoint=path)
    read = TimmAnchor(DINOV2, img_size=(70, 56), model_args=NARROW, init_cfg=init_cfg)
    source.set_input_size((70, 56))
    for anchor in (fetched, read):
        timm_models._log_once.cache_clear()
        anchor.init_weights()
        assert_same(anchor.vit, source.state_dict())
    told = [text for text in log(0) if 'licence apache-2.0' in text]
    assert len(told) == 2
    assert all('mean [123.675, 116.28, 103.53]' in text for text in told)
    # Of ours, from inside a stitched model.
    ours = {f'backbone.anchors.1.{k}': v for k, v in read.state_dict().items()}
    path = save(dict(state_dict=ours))
    for inside in ('', '.vit'):
        again = TimmAnchor(DINOV2, img_size=(70, 56), model_args=NARROW)
        load(again, path, prefix=f'backbone.anchors.1{inside}')
        assert_same(again, read.state_dict())
    assert log() == []
