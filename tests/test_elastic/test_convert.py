from types import SimpleNamespace

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from package_calls import infer, predicted
from small import small
from staged_anchors import disturb
from stock_networks import CASES, chains_of, read_stock
from torch.utils._pytree import tree_leaves

from snnet_mm.elastic import elastic_model, make_elastic
from snnet_mm.elastic.convert import check_equal, renames_of
from snnet_mm.elastic.job import Job
from snnet_mm.elastic.sensitivity import PredictionDistance
from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.utils.base_checkpoint import with_prefixes

OPS = pytest.mark.ops
FAST = 'segformer', 'convnext'
ENDS, NAMES = ('py', 'pth'), ('network', 'elastic')


def cases():
    for path, family in CASES.items():
        package, _, stock = path.partition('/')
        folder = stock.partition('/')[0]
        marks = [OPS] * (package == 'mmdet') + [pytest.mark.slow] * (folder not in FAST)
        name = f'{package}-{stock.rpartition("/")[2][:18]}'
        yield pytest.param((package, stock, family), marks=marks, id=name)


@pytest.fixture(scope='module', params=[*cases()])
@torch.no_grad()
def made(request, data, tmp_path_factory):
    """A stock model of random weights, and what is made of it, in files, too."""
    package, stock, family = request.param
    folder = tmp_path_factory.mktemp('made')
    torch.manual_seed(0)
    cfg = read_stock(package, stock, data, folder)
    cfg.dump(folder / 'network.py')
    network = init_model(cfg, None, device='cpu')
    if package != 'mmdet':  # boxes of random heads would have no area
        disturb(network)
    for parameter in network.backbone.parameters():
        parameter += 0.02 * torch.randn_like(parameter)
    meta = dict(dataset_meta=network.dataset_meta)
    state = dict(meta=meta, state_dict=network.state_dict())
    torch.save(state, folder / 'network.pth')
    options = dict(plans=chains_of(network), num_images=2, whole=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, 'evaluate', lambda self: self)
        patch.setattr(Job, '_check_tokens', lambda *_: None)  # these are few
        make_elastic(cfg, folder / 'network.pth', folder, device='cpu', **options)
    elastic = init_model(*(folder / f'elastic.{e}' for e in ENDS), 0, 'cpu')
    models = dict(network=network, elastic=elastic)
    names = dict(package=package, family=family, folder=folder)
    return SimpleNamespace(**names, **options, **models)


@torch.no_grad()
def test_elastic_model_unchanged_at_largest_budget(made, data):
    """Features in this package, and predictions of an image in the model's own."""
    cfg = Config.fromfile(made.folder / 'elastic.py')
    assert cfg.model.backbone.anchors[0]['type'] == made.family
    set_stitch(made.elastic, 0)
    check_equal(made.network, made.elastic, torch.randn(1, 3, 64, 64))
    image = str(data / 'images/validation/0.jpg')
    files = ([str(made.folder / f'{n}.{e}') for e in ENDS] for n in NAMES)
    wanted, found = (predicted(infer(made.package, *pair, image)) for pair in files)
    assert wanted.keys() == found.keys()
    for key, value in wanted.items():
        assert torch.equal(found[key], value), key


@torch.no_grad()
def test_elastic_model_chains_change_features_not_shapes(made):
    images = torch.randn(1, 3, 64, 64)
    whole = tree_leaves(made.network.extract_feat(images))
    for stitch in range(1, len(made.plans) + 1):
        set_stitch(made.elastic, stitch)
        found = tree_leaves(made.elastic.extract_feat(images))
        assert [t.shape for t in found] == [t.shape for t in whole]
        assert not all(map(torch.equal, found, whole))


@torch.no_grad()
def test_prediction_distance_of_stock_models(made):
    """It is zero for the network itself; what skips all it can predicts otherwise."""
    compared, found = PredictionDistance(made.elastic, None), []
    images = torch.randn(1, 3, 64, 64)
    for stitch in (0, 0, len(made.plans)):
        set_stitch(made.elastic, stitch)
        found.append(compared.read(images, made.elastic.backbone(images)))
    network, again, smallest = found
    assert abs(compared.distance(again, network)) < 1e-6
    assert not all(map(torch.equal, smallest, network))


def test_elastic_model_keeps_names_of_weights(made):
    """What is added is named after stitching layers and orders of units."""
    kept = with_prefixes(made.network.state_dict(), renames_of(made.network))
    added = made.elastic.state_dict().keys() - {*kept}
    own = 'stitching', 'unit_orders', 'backbone._extra_state'
    assert not [key for key in added if not any(name in key for name in own)]


def test_elastic_model_other_backbones_raise(tmp_path):
    pytest.importorskip('mmseg.models')
    init_default_scope('mmseg')
    elastic = dict(type='ElasticBackbone', anchors=[small('vit')], chains=[])
    model = torch.nn.Module()
    for wanted, backbone in (
        ('NoneType', None),
        ('ElasticBackbone', MODELS.build(elastic)),
        ('Linear', torch.nn.Linear(1, 1)),
    ):
        model.backbone = backbone
        with pytest.raises(ValueError, match=f"'{wanted}'.*model.backbone.type"):
            elastic_model(model)
