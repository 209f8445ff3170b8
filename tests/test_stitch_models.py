from functools import partial
from types import SimpleNamespace

import pytest
import torch
from mm_models import (
    cls_mean,
    cls_resnet,
    cls_swin,
    cls_vit,
    det_swin,
    own_vit,
    seg_mit,
    seg_vit,
)
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, DefaultScope
from mmseg.models import EncoderDecoder
from small import toy
from states import states_of
from torch.utils._pytree import tree_leaves

from snnet_mm.costs import cost_table
from snnet_mm.elastic import elastic_config, elastic_model
from snnet_mm.exports import single_stitch
from snnet_mm.exports.single import save_single
from snnet_mm.models import set_stitch
from snnet_mm.stitch_models import stitch_models
from snnet_mm.utils import load_config, model_config

# Config, model, its size when fast and slow, and the number of stitches.
PAIRS = dict(
    seg_vit=('seg', seg_vit, (16, 2), (24, 4), 4),
    seg_mit=('seg', seg_mit, (8, 1), (12, 3), 4),
    det_swin=('det', det_swin, (8, 1), (12, 3), 4),
    cls_swin=('cls', cls_swin, (8, 2), (12, 3), 4),
    cls_vit=('cls', cls_vit, (16, 2), (24, 4), 4),
    cls_mean=('cls', cls_mean, (16, 2), (24, 4), 4),
    cls_resnet=('cls', cls_resnet, (18, 0), (34, 0), 12),
)


def built(cfg):
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        model = MODELS.build(model_config(cfg))
    model.eval()
    return model


def write(folder, name, base, model, text='', **meta):
    """Write a config and a checkpoint with random weights; return both names."""
    config = folder / f'{name}.py'
    base = toy(base, 'vit-fast')
    config.write_text(f'_base_ = [{base!r}]\nmodel = {model!r}\n{text}')
    net = built(load_config(config))
    for key, value in net.state_dict().items():
        if value.is_floating_point():
            low = 0.5 if key.endswith('running_var') else -0.1
            value.uniform_(low, low + 0.2)
    checkpoint = config.with_suffix('.pth')
    torch.save(dict(state_dict=net.state_dict(), meta=meta), checkpoint)
    return str(config), str(checkpoint)


@pytest.fixture
def make(tmp_path):
    return partial(write, tmp_path)


def outputs(model, images):
    """Logits of a classifier, maps after the neck of others."""
    with torch.no_grad():
        classifies = hasattr(model, 'head')
        return tree_leaves(model(images) if classifies else model.extract_feat(images))


def with_weights(config, checkpoint):
    model = built(load_config(config))
    model.load_state_dict(torch.load(checkpoint)['state_dict'])
    return model


SLOW = {'cls_resnet', 'cls_swin', 'cls_mean', 'det_swin', 'seg_mit'}


@pytest.mark.parametrize(
    'pair', [pytest.param(p, marks=[pytest.mark.slow] * (p in SLOW)) for p in PAIRS]
)
def test_stitch_models_pair_starts_as_both(pair, make, tmp_path):
    base, model, *sizes, number = PAIRS[pair]
    pytest.importorskip(dict(det='mmdet', cls='mmpretrain').get(pair[:3], 'mmseg'))
    fast, slow = (
        make(name, base, model(*size))
        for name, size in zip(('fast', 'slow'), sizes, strict=True)
    )
    out = tmp_path / 'both' / 'stitched.py'
    *read, costs = stitch_models(slow, fast, out)
    assert [model.config for model in read] == [fast[0], slow[0]]
    assert len(costs) == number
    cfg = load_config(out)
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(
        load_config(slow[0]).optim_wrapper.optimizer.lr / 3, rel=1e-3
    )
    stitched = built(cfg)
    stitched.init_weights()
    assert torch.load(out.with_suffix('.pth'))['state_dict'].keys() == {
        *stitched.state_dict()
    }
    images = torch.randn(2, 3, 64, 64)
    ends = [(1, slow)] + [(0, fast)] * pair.startswith('cls')
    for stitch, trained in ends:
        set_stitch(stitched, stitch)
        wanted = outputs(with_weights(*trained), images)
        found = outputs(stitched, images)
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-5, atol=1e-5)
    for i in stitched.backbone.space.ids:
        _, single = single_stitch(cfg, stitched, i)
        pairs = zip(outputs(stitched, images), outputs(single, images), strict=True)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in pairs), i
    # Whatever the head, the fast anchor is the trained one.
    for key, value in stitched.state_dict().items():
        if key.startswith('backbone.anchors.0.'):
            assert torch.equal(value, read[0].weights[key]), key


@pytest.fixture(scope='module')
def with_chain(tmp_path_factory):
    """A network stitched with a chain of itself; its backbone was trained slowly."""
    folder = tmp_path_factory.mktemp('chain')
    torch.manual_seed(0)
    model, rate = own_vit(24, 4), dict(backbone=dict(lr_mult=0.03))
    rates = dict(custom_keys=dict(_delete_=True, **rate))
    model['backbone']['out_indices'] = (1, 3)
    text = f'optim_wrapper = dict(paramwise_cfg={rates!r})'
    slow = write(folder, 'slow', 'seg', model, text)
    cfg, network = load_config(slow[0]), with_weights(*slow)
    elastic = elastic_model(network, chain := ['0:1/9 1:2/0 2:0/0'])
    for layer in elastic.backbone.stitching_layers.values():
        torch.nn.init.normal_(layer.weight, std=0.1)
    cfg, single = single_stitch(elastic_config(cfg, network, chain), elastic, 1)
    fast = [str(folder / f'chain.{end}') for end in ('py', 'pth')]
    save_single(cfg, single, fast[1])
    faster, _, costs = stitch_models(fast, slow, folder / 'both.py')
    cfg = load_config(folder / 'both.py')
    stitched = built(cfg)
    stitched.init_weights()
    models = dict(stitched=stitched, elastic=elastic, single=single, network=network)
    facts = dict(cfg=cfg, costs=costs, fast=fast[0], read=faster.config)
    return SimpleNamespace(**facts, **models)


def test_stitch_models_chain_is_faster_than_network(with_chain):
    assert with_chain.read == with_chain.fast
    costs, space = with_chain.costs, with_chain.stitched.backbone.space
    assert len(costs) == len(space) == 14
    wanted = cost_table(with_chain.elastic, (64, 64))
    assert [costs[i].flops for i in (0, 1)] == [
        wanted[1].flops + 2 * 65 * 24 * 24,  # both maps, of 65 tokens, are projected
        wanted[0].flops,
    ]


def test_stitch_models_chain_and_network_are_anchors(with_chain):
    images = torch.randn(2, 3, 64, 64)
    for i, model in ((0, with_chain.single), (1, with_chain.network)):
        anchor = with_chain.stitched.backbone.anchors[i]
        assert model.backbone.out_indices == (1, 3)
        states = states_of(anchor, images)
        for block, found in zip((1, 3), model.backbone(images), strict=True):
            assert anchor.to_feature_map(states[block]).equal(found)


def test_stitch_models_layers_have_rate_of_head(with_chain):
    """Whatever the rate of the trained backbone."""
    model, settings = with_chain.stitched, with_chain.cfg.optim_wrapper
    optimizer = build_optim_wrapper(model, settings).optimizer
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(g['params'][0])]: g['lr'] for g in optimizer.param_groups}
    base = settings.optimizer.lr
    for name, rate in rates.items():
        trained = name.startswith('backbone.anchors.')
        assert rate == pytest.approx(base * (0.03 if trained else 1)), name


# What differs in the slow model, and what is said of it.
LOW = dict(num_layers=1, embed_dims=64, out_indices=(0,))
NOT_MIRRORED = dict(_delete_=True, type='MobileNetV3')
TEST = 'test_dataloader = dict(dataset=dict(pipeline={!r}))'
PACK, RESIZE = dict(type='PackSegInputs'), dict(type='Resize', scale=(64, 48))
NORMALIZE = dict(type='Normalize', mean=[9.0, 9, 9], std=[2.0, 2, 2])
PIXELS, SIZE = (
    'whose pixels differ by up to .*data_preprocessor',
    'image of 600x800.*of',
)
OTHER_DATA = "train_dataloader = dict(dataset=dict(of='Other'))"
MISFITS = dict(
    classes=(dict(decode_head=dict(num_classes=7)), '', r'num_classes=\[5\].*\[7\]'),
    data=({}, OTHER_DATA, "'Other'.*train_dataloader.dataset"),
    images=(dict(data_preprocessor=dict(mean=[0, 0, 0])), '', PIXELS),
    order=(dict(data_preprocessor=dict(bgr_to_rgb=False)), '', PIXELS),
    padding=(dict(data_preprocessor=dict(test_cfg=dict(size=(999, 999)))), '', SIZE),
    normalised=({}, TEST.format([NORMALIZE, PACK]), PIXELS),
    resized=({}, TEST.format([RESIZE, PACK]), f'{SIZE} 48x64'),
    cropped=({}, TEST.format([dict(type='CenterCrop', crop_size=64), PACK]), SIZE),
    patches=(dict(backbone=dict(patch_size=16)), '', r'patch_size=\(\(16,\), \(8,\)\)'),
    depth=(dict(backbone=LOW, decode_head=dict(in_channels=64)), '', 'depth'),
    twins=(dict(), '', 'FLOPs twice'),
    rate=({}, 'optim_wrapper = dict(optimizer=dict(lr=None))', 'a learning rate'),
    prefix=(dict(backbone=dict(with_cls_token=False)), '', 'num_registers'),
    kind=(dict(backbone=NOT_MIRRORED), '', "type='MobileNetV3' is invalid"),
)


@pytest.mark.parametrize('misfit', MISFITS)
def test_stitch_models_misfits_raise(misfit, make, tmp_path):
    change, text, message = MISFITS[misfit]
    size = (16, 2) if misfit == 'twins' else (24, 4)
    model, changed = seg_vit(16, 2), seg_vit(*size)
    for part, settings in change.items():
        old = {} if '_delete_' in settings else changed.get(part, {})
        changed[part] = old | settings
    fast, slow = make('fast', 'seg', model), make('slow', 'seg', changed, text)
    with pytest.raises(ValueError, match=message):
        stitch_models(fast, slow, tmp_path / 'both.py')
    assert not list(tmp_path.glob('both.*'))


def test_stitch_models_compares_pixels_and_not_settings(make, tmp_path):
    """Both pipelines resize in Pillow, and normalise where the other one does not."""
    mean, std = [120.0, 110.0, 100.0], [60.0, 58.0, 57.0]
    load, keep = dict(type='LoadImageFromFile'), dict(keep_ratio=True)
    pillow = dict(RESIZE, backend='pillow', type='mmseg.Resize')
    late, early = (seg_vit(16 * n, 2 * n) for n in (1, 2))
    late['data_preprocessor'] = dict(mean=mean, std=std, bgr_to_rgb=True)
    early['data_preprocessor'] = dict(mean=None, std=None, bgr_to_rgb=False)
    normalize = dict(NORMALIZE, mean=mean, std=std, to_rgb=True)
    steps = [dict(load, color_type='color'), pillow, normalize, PACK]
    models = make('late', 'seg', late, TEST.format([load, pillow, PACK]))
    models = models, make('early', 'seg', early, TEST.format(steps))
    stitch_models(*models, tmp_path / 'both.py')
    steps[1] = pillow | keep | dict(scale=(64, 47))
    other = make('other', 'seg', early, TEST.format(steps))
    with pytest.raises(ValueError, match='image of 48x64.*one of 47x63'):
        stitch_models(models[0], other, tmp_path / 'third.py')


def test_stitch_models_compares_tasks_classes_and_names(make, tmp_path):
    pytest.importorskip('mmpretrain')
    a, b = (
        make(name, 'seg', seg_vit(16, 2), dataset_meta=dict(classes=classes))
        for name, classes in dict(a=('tree', 'car'), b=('car', 'tree')).items()
    )
    for other, out, message in (
        (b, 'both.py', "classes=.*'tree'"),
        (make('c', 'cls', {}), 'both.py', 'model.type'),
        (b, 'both', 'a name that ends in .py'),
    ):
        with pytest.raises(ValueError, match=message):
            stitch_models(a, other, tmp_path / out)


def test_stitch_models_compares_first_of_concatenated_sets(make, tmp_path):
    data = "_delete_=True, type='ConcatDataset', datasets=[dict(of={!r}, pipeline=[])]"
    text = f'train_dataloader = dict(dataset=dict({data}))'
    models = (make(n, 'seg', seg_vit(16, 2), text.format(n)) for n in 'ab')
    with pytest.raises(ValueError, match="'a'.*'b'.*train_dataloader.dataset"):
        stitch_models(*models, tmp_path / 'both.py')


class RestlessSegmentor(EncoderDecoder):
    """Starts its head anew after ``init_cfg``, as DETR does its transformer."""

    def init_weights(self):
        super().init_weights()
        self.decode_head.conv_seg.weight.data.zero_()


def test_stitch_models_restless_model_loads_weights_later(make, tmp_path, monkeypatch):
    monkeypatch.setitem(MODELS.module_dict, 'RestlessSegmentor', RestlessSegmentor)
    layers = dict(constructor='AnyConstructor', paramwise_cfg=dict(decay_rate=0.7))
    text = f'optim_wrapper = {layers}\nload_from = "other.pth"'
    kind = dict(type='RestlessSegmentor')
    a, b = (make(n, 'seg', seg_vit(16 * n, 2) | kind, text) for n in (1, 2))
    stitch_models(a, b, tmp_path / 'both.py')
    cfg = load_config(tmp_path / 'both.py')
    assert cfg.load_from == str(tmp_path / 'both.pth')
    assert 'init_cfg' not in cfg.model
    # mm's layer-wise decay knows mm's backbones only.
    assert cfg.optim_wrapper.constructor == 'AnchorLayerDecayConstructor'
    assert cfg.optim_wrapper.paramwise_cfg == dict(decay_rates=0.7)
