"""Models of one network, before and after they are made elastic."""

import sys

import pytest
import torch
from mm_models import CLS, TOY, cls_mean, cls_vit
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from narrowing import write_data
from package_calls import infer, predicted
from staged_anchors import disturb
from stock_networks import CASES, chains_of, read_stock
from torch.utils._pytree import tree_leaves

from snnet_mm.elastic import convert_model, make_elastic
from snnet_mm.elastic.convert import check_equal, layer_decay
from snnet_mm.exports import single_stitch
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import fit_in_turn, set_stitch
from snnet_mm.utils import load_config
from snnet_mm.utils.base_checkpoint import with_prefixes

OPS = pytest.mark.ops
FAST = 'segformer', 'convnext'
ENDS = 'py', 'pth'


def cases():
    for path, case in CASES.items():
        package, _, stock = path.partition('/')
        folder = stock.partition('/')[0]
        marks = [OPS] * (package == 'mmdet') + [pytest.mark.slow] * (folder not in FAST)
        name = f'{package}-{stock.rpartition("/")[2][:18]}'
        yield pytest.param(package, stock, *case, marks=marks, id=name)


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    """Generated images in the layouts of ADE20K, COCO and ImageNet."""
    root = tmp_path_factory.mktemp('data')
    pytest.importorskip('mmdet.datasets')
    write_data(root, DATASETS.get('mmdet.CocoDataset').METAINFO['classes'])
    return root


@torch.no_grad()
@pytest.mark.parametrize('package, stock, family, backbone, parts', [*cases()])
def test_a_stock_model_is_unchanged_at_the_largest_budget(
    package, stock, family, backbone, parts, data, tmp_path, monkeypatch
):
    cfg = read_stock(package, stock, backbone, parts, data, tmp_path)
    cfg.dump(tmp_path / 'network.py')
    network = init_model(cfg, None, device='cpu')
    if package != 'mmdet':  # boxes of random heads would have no area
        disturb(network)
    for parameter in network.backbone.parameters():
        parameter += 0.02 * torch.randn_like(parameter)
    meta = dict(dataset_meta=network.dataset_meta)
    state = dict(meta=meta, state_dict=network.state_dict())
    torch.save(state, tmp_path / 'network.pth')
    job = sys.modules[make_elastic.__module__]._Job
    monkeypatch.setattr(job, 'evaluate', lambda self: self)
    monkeypatch.setattr(job, '_check_tokens', lambda *_: None)  # these are few
    conversion = convert_model(cfg, network)
    assert conversion.backbone['anchors'][0]['type'] == family
    options = dict(plans=chains_of(conversion), num_images=2, whole=True)
    make_elastic(cfg, tmp_path / 'network.pth', tmp_path, device='cpu', **options)
    elastic = init_model(*(tmp_path / f'elastic.{e}' for e in ENDS), 0, 'cpu')
    images = torch.randn(1, 3, 64, 64)
    check_equal(network, elastic, images)
    whole = tree_leaves(network.eval().extract_feat(images))
    for stitch in range(1, len(options['plans']) + 1):
        set_stitch(elastic, stitch)
        found = tree_leaves(elastic.extract_feat(images))
        assert [t.shape for t in found] == [t.shape for t in whole]
        assert not all(map(torch.equal, found, whole))
    added = elastic.state_dict().keys() - {
        *with_prefixes(network.state_dict(), conversion.renames)
    }
    own = 'stitching', 'unit_orders', 'backbone._extra_state'
    assert not [key for key in added if not any(name in key for name in own)]
    image = str(data / 'images/validation/0.jpg')
    wanted, found = (
        predicted(infer(package, *(str(tmp_path / f'{n}.{e}') for e in ENDS), image))
        for n in ('network', 'elastic')
    )
    assert wanted.keys() == found.keys()
    for key, value in wanted.items():
        assert torch.equal(found[key], value), key


@torch.no_grad()
@pytest.mark.parametrize('model, number', [(cls_vit, 1), (cls_mean, 0)])
def test_convert_model_cls_tokens_have_own_map(model, number, tmp_path):
    """Cls tokens that a head reads have their own map."""
    pytest.importorskip('mmpretrain')
    path, base = tmp_path / 'network.py', TOY.format(CLS)
    path.write_text(f'_base_ = [{base!r}]\nmodel = {model(16, 4)!r}\n')
    cfg = load_config(path)
    network = disturb(init_model(cfg, None, device='cpu'))
    conversion, chains = convert_model(cfg, network), ['1:0/0 3:0/0']
    elastic = conversion.build(cfg, chains, network)
    images = torch.randn(8, 3, 64, 64)
    fit_in_turn(elastic.backbone, [images])
    config = conversion.config(cfg, chains)
    reloaded = init_model(config, None, device='cpu')
    reloaded.load_state_dict(elastic.state_dict())
    layers = reloaded.backbone.stitching_layers.values()
    assert [layer.num_prefix for layer in layers] == [number] * 2
    _, single = single_stitch(config, reloaded, 1)
    assert single(images).equal(reloaded(images))
    (found,), (other,) = reloaded.backbone(images), network.backbone(images)
    assert (found - other).abs().max() > 0.01


def test_convert_model_other_backbones_raise(tmp_path):
    pytest.importorskip('mmseg.models')
    init_default_scope('mmseg')
    vit = dict(type='PlainViT', arch=dict(embed_dims=8, depth=2, num_heads=2))
    elastic = dict(type='ElasticBackbone', anchors=[dict(vit, img_size=32)], chains=[])
    model = torch.nn.Module()
    for wanted, backbone in (
        ('NoneType', None),
        ('ElasticBackbone', MODELS.build(elastic)),
        ('Linear', torch.nn.Linear(1, 1)),
    ):
        model.backbone = backbone
        cfg = Config(dict(model=dict(type='x', backbone=dict(type='y'))))
        with pytest.raises(ValueError, match=f"'{wanted}'.*model.backbone.type"):
            convert_model(cfg, model)


BY_KIND = 'LearningRateDecayOptimizerConstructor'
BY_LAYER = 'LayerDecayOptimizerConstructor'


@pytest.mark.parametrize(
    'constructor, paramwise, wanted',
    [
        (BY_LAYER, dict(layer_decay_rate=0.7), {}),
        (BY_KIND, dict(decay_rate=0.7, decay_type='layer_wise', num_layers=4), {}),
        (
            BY_KIND,
            dict(decay_rate=0.7, decay_type='stage_wise', num_layers=4),
            dict(num_layers=4),
        ),
    ],
)
def test_layer_decay_of_mm_becomes_that_of_anchors(constructor, paramwise, wanted):
    """mm's constructors know only mm's backbones."""
    found = layer_decay(dict(constructor=constructor, paramwise_cfg=paramwise))
    rates = dict(wanted, _delete_=True, decay_rates=0.7)
    own = dict(constructor='AnchorLayerDecayConstructor', paramwise_cfg=rates)
    assert found == own
    assert layer_decay(dict(paramwise_cfg=dict(custom_keys={}))) == {}
