"""What is said about checkpoints that are incomplete, of another shape or foreign."""

import logging
import sys

import pytest
import torch
from mmengine.logging import MMLogger

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.pretrained import adapt_weights, load_pretrained

KEY = r'\(config key: init_cfg\.checkpoint\)'


@pytest.fixture
def save(tmp_path):
    def save(checkpoint, name='weights.pth'):
        torch.save(checkpoint, tmp_path / name)
        return str(tmp_path / name)

    return save


@pytest.fixture
def log(caplog):
    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def warnings(log):
    return [r.getMessage() for r in log.records if r.levelno >= logging.WARNING]


def assert_same(vit, other):
    for key, value in other.state_dict().items():
        assert vit.state_dict()[key].equal(value), key


@pytest.mark.parametrize('wrapping', ['bare', 'state_dict', 'model', 'module'])
def test_our_own_weights(build_vit, save, log, wrapping):
    kwargs = dict(num_registers=2, rel_pos_bias=True, final_norm=True)
    source, vit = build_vit(**kwargs), build_vit(**kwargs)
    weights = source.state_dict()
    load_pretrained(vit, save(weights if wrapping == 'bare' else {wrapping: weights}))
    assert_same(vit, source)
    assert warnings(log) == []


@pytest.mark.parametrize('prefix', ['backbone.anchors.1', 'backbone.anchors.1.'])
def test_prefix_of_an_mm_checkpoint(build_vit, save, log, prefix):
    fast, slow, vit = build_vit(), build_vit(12), build_vit(12)
    weights = {f'backbone.anchors.0.{k}': v for k, v in fast.state_dict().items()}
    weights |= {f'backbone.anchors.1.{k}': v for k, v in slow.state_dict().items()}
    weights['decode_head.conv_seg.weight'] = torch.randn(3)
    load_pretrained(vit, save(dict(meta=dict(iter=3), state_dict=weights)), prefix)
    assert_same(vit, slow)
    assert warnings(log) == []


def test_missing_and_unexpected_keys_are_logged_by_name(build_vit, save, log):
    weights = build_vit().state_dict()
    weights['norm_pre.weight'] = torch.randn(8)
    vit = build_vit(rel_pos_bias=True, final_norm=True)
    tables = {k: v.clone() for k, v in vit.state_dict().items() if 'table' in k}
    path = save(weights)
    load_pretrained(vit, path)
    names = [f'blocks.{i}.attn.rel_pos_bias.table' for i in range(3)]
    assert warnings(log) == [
        f'{path}: missing keys {[*names, "norm.weight", "norm.bias"]}',
        f"{path}: unexpected keys ['norm_pre.weight']",
    ]
    for name in names:
        assert vit.state_dict()[name].equal(tables[name])
    assert vit.patch_embed.proj.weight.equal(weights['patch_embed.proj.weight'])


def test_adapting_changes_neither_weights_nor_anchor(build_vit):
    weights = build_vit(img_size=64, pos_embed_prefix=True).state_dict()
    vit = build_vit()
    before = [{k: v.clone() for k, v in d.items()} for d in (weights, vit.state_dict())]
    adapted = adapt_weights(weights, vit)
    assert adapted['pos_embed'].shape == (1, 16, 8)
    for now, then in zip((weights, vit.state_dict()), before, strict=True):
        assert list(now) == list(then)
        assert all(now[k].equal(v) for k, v in then.items())


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(embed_dims=12), 'its width is 12, .* 8 .*arch.embed_dims'),
        (dict(depth=4), 'its depth is 4, .* is 3 .*arch.depth'),
        (dict(patch_size=4), 'its patch size is 4, .* is 8 .*patch_size'),
        (dict(in_channels=1), 'channels is 1, .* is 3 .*in_channels'),
        (
            dict(arch=dict(embed_dims=8, depth=3, num_heads=2, mlp_ratio=2)),
            r'its mlp ratio is 2.0, .* is 4.0 .*arch.mlp_ratio',
        ),
        (dict(num_heads=4), r'table has shape \(52, 4\), .*\(52, 2\) .*arch'),
        (dict(num_registers=2), r'reg_token has shape \(1, 2, 8\), .*\(1, 1, 8\)'),
        (dict(img_size=(24, 40)), 'pos_embed with 15 entries is neither .* 4x4 patch'),
        (dict(cls_token=False), 'table has 0 rows for prefix tokens, .* has 3'),
    ],
)
def test_other_geometries_are_refused(build_vit, save, kwargs, message):
    common = dict(rel_pos_bias=True, num_registers=1)
    if 'cls_token' in kwargs:
        kwargs = dict(kwargs, num_registers=0)
    path = save(build_vit(**(common | kwargs)).state_dict())
    with pytest.raises(ValueError, match=message) as error:
        load_pretrained(build_vit(**common), path)
    assert f'checkpoint {path} (config key: init_cfg.checkpoint)' in str(error.value)


def test_refused_weights_leave_the_anchor_alone(build_vit, save):
    vit = build_vit()
    before = {k: v.clone() for k, v in vit.state_dict().items()}
    with pytest.raises(ValueError, match='its depth is 4'):
        load_pretrained(vit, save(build_vit(depth=4).state_dict()))
    assert all(vit.state_dict()[k].equal(v) for k, v in before.items())


def test_a_resnet_is_refused(build_vit, save):
    torchvision = pytest.importorskip('torchvision')
    path = save(torchvision.models.resnet18().state_dict())
    with pytest.raises(ValueError, match=KEY) as error:
        load_pretrained(build_vit(), path)
    assert 'holds no plain ViT' in str(error.value)
    assert 'conv1.weight, bn1.weight' in str(error.value)


def test_a_forgotten_prefix_is_named(build_vit, save):
    weights = {f'backbone.{k}': v for k, v in build_vit().state_dict().items()}
    path = save(dict(state_dict=weights))
    with pytest.raises(ValueError, match=r"prefixes are \['backbone.'\]"):
        load_pretrained(build_vit(), path)
    with pytest.raises(ValueError, match=r"'model\.'; there are \['backbone'\]"):
        load_pretrained(build_vit(), path, 'model')


@pytest.mark.parametrize(
    ('checkpoint', 'message'),
    [
        ('absent.pth', 'checkpoint absent.pth does not exist'),
        ('s3://bucket/a.pth', 'scheme s3://; allowed are timm://, http://'),
        ('timm://no_such_model', 'timm://no_such_model cannot be fetched: Unknown'),
    ],
)
def test_what_cannot_be_had(build_vit, checkpoint, message):
    if checkpoint.startswith('timm'):
        pytest.importorskip('timm')
    with pytest.raises(ValueError, match=message + '.*' + KEY):
        load_pretrained(build_vit(), checkpoint)


def test_a_checkpoint_without_weights(build_vit, save):
    path = save(dict(epoch=3, net=dict(a=torch.ones(1))))
    with pytest.raises(ValueError, match=r"no weights.*there are \['epoch', 'net'\]"):
        load_pretrained(build_vit(), path)


@pytest.mark.parametrize('keys', [dict(), dict(checkpoint='a', map_location='cpu')])
def test_unknown_keys_of_init_cfg(keys):
    vit = PlainViT('tiny', img_size=32, init_cfg=dict(type='Pretrained', **keys))
    allowed = r"checkpoint, allowed are \('prefix', 'img_size'\)"
    with pytest.raises(ValueError, match=allowed):
        vit.init_weights()


def test_img_size_of_a_checkpoint_that_is_not_square(build_vit, save):
    source = build_vit(img_size=(16, 24))
    vit = build_vit()
    load_pretrained(vit, save(source.state_dict()), img_size=(16, 24))
    expected = adapt_weights(source.state_dict(), vit, (16, 24))['pos_embed']
    assert vit.pos_embed.equal(expected)
    columns = source.pos_embed.view(2, 3, 8).mean(0)
    resized = vit.pos_embed.view(4, 4, 8).mean(0)
    torch.testing.assert_close(resized.mean(0), columns.mean(0), atol=0.1, rtol=0)


def test_timm_models_by_name(build_vit, monkeypatch, randomise):
    timm = pytest.importorskip('timm')
    model = randomise(
        timm.create_model(
            'deit3_small_patch16_224', embed_dim=8, depth=3, num_heads=2, num_classes=7
        )
    )
    asked = []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        return model

    monkeypatch.setattr(timm, 'create_model', create_model)
    vit = build_vit(
        img_size=224,
        patch_size=16,
        final_norm=True,
        init_cfg=dict(type='Pretrained', checkpoint='timm://deit3_small_patch16_224'),
    )
    vit.init_weights()
    assert asked == [('deit3_small_patch16_224', True)]
    for key, value in vit.state_dict().items():
        assert value.equal(model.state_dict()[key])


def test_timm_that_cannot_fetch(build_vit, monkeypatch):
    timm = pytest.importorskip('timm')

    def create_model(name, pretrained):
        raise OSError('no route to host')

    monkeypatch.setattr(timm, 'create_model', create_model)
    with pytest.raises(ValueError, match='cannot be fetched: no route to host.*' + KEY):
        load_pretrained(build_vit(), 'timm://deit3_small_patch16_224')


def test_without_timm(build_vit, monkeypatch):
    monkeypatch.setitem(sys.modules, 'timm', None)
    with pytest.raises(ImportError, match='needs timm.*install timm or name a file'):
        load_pretrained(build_vit(), 'timm://deit3_small_patch16_224')
