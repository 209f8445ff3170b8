import logging

import pytest
import torch
from mmengine.logging import MMLogger
from narrow_timm import DINOV2, EVA02, NARROW, anchor_of, timm_of

from snnet_mm.anchors import PlainViT, TimmAnchor
from snnet_mm.utils import licences


@pytest.fixture
def log(caplog):
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def test_weights_of_timm_are_loaded(tmp_path, log, monkeypatch):
    source = timm_of(DINOV2, anchor_of(DINOV2, img_size=56))
    path = str(tmp_path / 'weights.pth')
    torch.save(source.state_dict(), path)
    args = dict(NARROW, pretrained_cfg_overlay=dict(file=path))
    fetched = TimmAnchor(DINOV2, True, (70, 56), args)
    init_cfg = dict(type='Pretrained', checkpoint=path)
    read = TimmAnchor(DINOV2, img_size=(70, 56), model_args=NARROW, init_cfg=init_cfg)
    for anchor in (fetched, read):
        monkeypatch.setattr(licences, '_TOLD', set())
        before = anchor.vit.reg_token.clone()
        anchor.init_weights()
        assert not torch.equal(anchor.vit.reg_token, before)
        source.set_input_size((70, 56))
        for key, value in source.state_dict().items():
            assert torch.equal(anchor.vit.state_dict()[key], value), key
    told = [r.message for r in log.records if 'licence' in r.message]
    assert told == 2 * [
        'Weights of vit_small_patch14_reg4_dinov2.lvd142m: licence apache-2.0; trained '
        'on images with mean [123.675, 116.28, 103.53] and std [58.395, 57.12, 57.375] '
        '(config key: data_preprocessor)'
    ]
    # Of ours, from inside a stitched model.
    ours = {f'backbone.anchors.1.{k}': v for k, v in read.state_dict().items()}
    torch.save(dict(state_dict=ours), path)
    init_cfg['prefix'] = 'backbone.anchors.1.vit'
    again = TimmAnchor(DINOV2, img_size=(70, 56), model_args=NARROW, init_cfg=init_cfg)
    again.init_weights()
    assert [r for r in log.records if r.levelno >= logging.WARNING] == []
    for key, value in read.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


def test_licences_of_official_files(tmp_path, log, monkeypatch):
    monkeypatch.setattr(licences, '_TOLD', set())
    arch = dict(embed_dims=16, depth=1, num_heads=1)
    for name in ('mae_finetuned_vit_base.pth', 'deit_3_small_224_21k.pth', 'mine.pth'):
        path = str(tmp_path / name)
        torch.save(PlainViT(arch, 32).state_dict(), path)
        for _ in range(2):
            init_cfg = dict(type='Pretrained', checkpoint=path)
            PlainViT(arch, 32, init_cfg=init_cfg).init_weights()
    assert [r.message for r in log.records if 'licence' in r.message] == [
        'Weights of mae_finetuned_vit_base.pth: licence cc-by-nc-4.0, if it is the '
        'official file',
        'Weights of deit_3_small_224_21k.pth: licence apache-2.0, if it is the '
        'official file',
    ]


@pytest.mark.parametrize(
    'name', ['beitv2_base_patch16_224', EVA02, 'samvit_base_patch16']
)
def test_files_of_other_families_are_loaded(name, tmp_path):
    source = anchor_of(name)
    torch.save(source.vit.state_dict(), tmp_path / 'weights.pth')
    init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'weights.pth'))
    anchor = anchor_of(name, init_cfg=init_cfg)
    torch.nn.init.ones_(anchor.vit.blocks[0].norm1.weight)
    anchor.init_weights()
    for key, value in source.state_dict().items():
        assert torch.equal(anchor.state_dict()[key], value), key


def test_what_cannot_be_had_or_does_not_fit(tmp_path):
    overlay = dict(file=str(tmp_path / 'none.pth'))
    args = dict(NARROW, pretrained_cfg_overlay=overlay)
    anchor = TimmAnchor('vit_small_patch14_dinov2', True, 28, args)
    with pytest.raises(ValueError, match='vit_small_patch14_dinov2 cannot be fetched'):
        anchor.init_weights()
    for kwargs, message in (
        (dict(model='no_such_vit'), 'cannot be built: Unknown model'),
        (
            dict(model='resnet18', img_size=None, model_args={}),
            'is a ResNet of timm.*families.md',
        ),
        (dict(model_args=dict(no_such=1)), 'cannot be built: .*no_such'),
        (dict(model_args=dict(img_size=28)), r"keys \['img_size'\].*model_args"),
        (dict(model_args=dict(patch_drop_rate=0.5)), 'patches are never dropped'),
        (dict(drop_path_rate=1), 'drop_path_rate=1'),
        (dict(frozen_stages=4), 'frozen_stages=4'),
        (dict(held_blocks=(3,)), 'held_blocks'),
        (dict(pretrained=True, init_cfg={}), 'allowed is one of them'),
        (dict(model_args=dict(NARROW, patch_size=(14, 7))), '14x7 pixels'),
    ):
        kwargs = dict(model=DINOV2, img_size=28, model_args=NARROW) | kwargs
        with pytest.raises(ValueError, match=message):
            TimmAnchor(**kwargs)
    with pytest.raises(ValueError, match='images of 13x28 pixels are smaller'):
        anchor_of(DINOV2)(torch.rand(1, 3, 13, 28))
    path = str(tmp_path / 'weights.pth')
    torch.save(anchor_of(DINOV2, img_size=28).vit.state_dict(), path)
    for args, more, message in (
        (dict(depth=2), {}, 'it has blocks.2.'),
        (dict(depth=4), {}, 'it lacks blocks.3.'),
        (dict(embed_dim=16), {}, 'does not fit: .*size mismatch'),
        ({}, dict(prefix='no.'), 'no weight has prefix'),
        ({}, dict(img_size=28), 'a checkpoint and a prefix'),
    ):
        init_cfg = dict(type='Pretrained', checkpoint=path, **more)
        anchor = TimmAnchor(
            DINOV2, img_size=28, model_args=NARROW | args, init_cfg=init_cfg
        )
        with pytest.raises(ValueError, match=message):
            anchor.init_weights()
