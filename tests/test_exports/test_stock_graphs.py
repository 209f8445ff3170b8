"""ONNX graphs of elastic networks: stock models, and all families of anchors."""

from copy import deepcopy

import pytest
import torch
from families import families
from manifests import open_exported
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from old_torch import writes_onnx
from staged_anchors import disturb
from stock_networks import CASES, chains_of, read_stock
from torch import nn
from torch.utils._pytree import tree_leaves

from snnet_mm.elastic import elastic_config, elastic_model
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.comparison import check_parity, predict_loaded
from snnet_mm.models import find_stitched_backbone, fit_in_turn, set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import as_tuple
from snnet_mm.utils.configs import takes_rgb

pytest.importorskip('onnxruntime')
pytestmark = writes_onnx

TOLERANCE = 1e-4  # of fp32, relative to the largest prediction if that exceeds 1
NO_GRAPHS = {  # see docs/how_to/detectors.md
    'mmdet/centernet/centernet_r18_8xb16-crop512-140e_coco',
    'mmdet/yolact/yolact_r50_1xb8-55e_coco',
}
CORRELATION = 0.95  # least of fp16 and int8 with PyTorch
SIZE = 64, 64


def cases():
    for path in sorted(CASES.keys() - NO_GRAPHS):
        package, _, stock = path.partition('/')
        name = stock.rpartition('/')[2]
        marks = [pytest.mark.ops] * (package == 'mmdet')
        marks += [pytest.mark.slow]
        yield pytest.param(package, stock, marks=marks, id=f'{package}-{name}')


@torch.no_grad()
def assert_graphs_predict(cfg, network, folder, package):
    """Assert that graphs of a chain of half of the units equal the elastic network."""
    plans = chains_of(network)
    chains = plans[1:2] or plans[:1]
    elastic = elastic_model(network, chains)
    # PointRend's choice of points may differ where two are nearly as uncertain.
    images = torch.randn(4, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    fit_in_turn(find_stitched_backbone(elastic), [images])
    cfg = elastic_config(cfg, network, chains, SIZE)
    layers = elastic.backbone.anchors.modules()
    linear = any(isinstance(layer, nn.Linear) for layer in layers)
    precisions = ['fp32'] + ['int8'] * linear
    if 'ResNet' not in str(cfg.model.backbone):  # random ones exceed half precision
        precisions.insert(1, 'fp16')
    exporter = StitchExporter(cfg, elastic, folder / 'bundle', SIZE)
    # It runs half of all hidden units, or a map in place of blocks of one piece.
    (stitch,) = exporter.export_bundle([1], precisions=precisions)['stitches']
    assert [file['precision'] for file in stitch['files']] == [*precisions]
    task = task_of(elastic)
    set_stitch(elastic, 1)
    for file in stitch['files']:
        run = open_exported(exporter.out_dir, file)
        for number in (1, 2):
            images = 255 * torch.rand(number, 3, *SIZE)
            graph_images = images.flip(1) if takes_rgb(cfg) else images
            got, wanted = run(graph_images), predict_loaded(cfg, elastic, images)
            if file['precision'] == 'fp32':
                ranked = bool(task.output_names(elastic))
                check_parity(file['name'], got, wanted, TOLERANCE, ranked)
            elif package != 'mmdet':  # boxes of random heads have any order
                for pair in zip(as_tuple(got), as_tuple(wanted), strict=True):
                    flat = torch.stack([each.flatten() for each in pair])
                    assert torch.corrcoef(flat)[0, 1] > CORRELATION


@pytest.mark.parametrize('package, stock', [*cases()])
def test_graphs_of_an_elastic_stock_model(package, stock, data, tmp_path):
    cfg = read_stock(package, stock, data, tmp_path)
    network = init_model(cfg, None, device='cpu')
    if package != 'mmdet':  # boxes of random heads would have no area
        disturb(network)
    assert_graphs_predict(cfg, network, tmp_path, package)


class Pooled(nn.Module):
    """Means of the last map, or the features that a network returns."""

    def forward(self, outputs):
        x = tree_leaves(outputs)[-1]
        return (x.mean((2, 3)) if x.ndim == 4 else x,)


@pytest.mark.slow
@pytest.mark.parametrize('anchor', families(quick=()))
def test_graphs_of_an_elastic_anchor(anchor, tmp_path):
    pytest.importorskip('mmpretrain.models')
    MODELS.register_module('Pooled', module=Pooled, force=True)
    with torch.no_grad():
        net = MODELS.build(deepcopy(anchor)).eval()
        (width,) = {x.shape[1] for x in Pooled()(net(torch.zeros(1, 3, *SIZE)))}
    head = dict(type='LinearClsHead', num_classes=5, in_channels=width)
    model = dict(type='ImageClassifier', backbone=anchor)
    model |= dict(neck=dict(type='Pooled'), head=head)
    model['data_preprocessor'] = dict(num_classes=5, mean=[127.5] * 3, std=[64] * 3)
    cfg = Config(dict(default_scope='mmpretrain', model=model))
    init_default_scope('mmpretrain')
    network = disturb(MODELS.build(cfg.model)).eval()
    assert_graphs_predict(cfg, network, tmp_path, 'mmpretrain')
