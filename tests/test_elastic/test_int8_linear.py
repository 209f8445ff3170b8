"""Linear layers in int8, against numbers by hand and against an exported graph."""

import numpy as np
import pytest
import torch
from small import build_disturbed, small
from torch import nn

from snnet_mm.elastic.int8_linear import Int8Linear
from snnet_mm.exports import StitchExporter
from snnet_mm.exports.comparison import predict_loaded
from snnet_mm.exports.formats import FORMATS
from snnet_mm.exports.normalization import graph_order
from snnet_mm.models import set_stitch


def test_int8_linear_rounds_weights_by_channel_and_inputs_by_call():
    layer = nn.Linear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.27, 0.304], [0.0, -2.54], [0.0, 0.0]]))
        layer.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
        x = torch.tensor([[2.04, -0.51], [0.0133, 0.5]])  # steps of 0.01
        with Int8Linear():
            found = layer(x)
    rounded = np.array([[2.04, -0.51], [0.01, 0.5]])
    weight = np.array([[1.27, 0.30], [0.0, -2.54], [0.0, 0.0]])
    np.testing.assert_allclose(found, rounded @ weight.T + [0, 1, 2], atol=1e-6)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_int8_linear_keeps_what_maps_near_the_identity_copy():
    layer = nn.Linear(4, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4) + 0.01 * torch.randn(4, 4))
        x = torch.tensor([[1000.0, 1.0, -1.0, 0.3]])  # steps of 4
        with Int8Linear():
            near, far = layer(x), nn.functional.linear(x, 2.5 * layer.weight)
        exact = layer(x)
    assert (near - exact).abs().max() < 0.2
    assert (far - 2.5 * (exact - layer.bias)).abs().max() > 1


@pytest.mark.slow
def test_int8_linear_predicts_exported_graphs(tmp_path):
    """Far better than the network in fp32 does."""
    pytest.importorskip('onnxruntime')
    cfg = small('narrow')
    anchors = cfg.model.backbone.anchors[1:]
    chains = ['0:1/20 1:0/0']
    cfg.model.backbone = dict(
        type='ElasticBackbone', anchors=anchors, chains=chains, full_maps=False
    )
    model = build_disturbed(cfg)
    exporter = StitchExporter(cfg, model, tmp_path)
    manifest = exporter.export_bundle('all', precisions=('int8',))
    assert len(manifest['stitches']) == 2
    for stitch in manifest['stitches']:
        set_stitch(model, stitch['id'])
        graph = FORMATS['onnx'].load(tmp_path / stitch['files'][0]['name'])
        for image in exporter.images.split(1):
            wanted = graph(graph_order(cfg, image))
            exact = predict_loaded(cfg, model, image)
            with Int8Linear():  # its head has no linear layers
                found = predict_loaded(cfg, model, image)
            assert (found - wanted).norm() < 0.2 * (exact - wanted).norm()
