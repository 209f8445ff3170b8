"""Linear layers in int8."""

import numpy as np
import pytest
from torch import nn

from snnet_mm.anchors import PlainViT

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.onnx_files import _to_int8  # noqa: E402

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def outputs(model, x, path):
    ir.save(model, path)
    return onnxruntime.InferenceSession(path).run(None, {'x': x})[0]


def layer(x, matrix, name='backbone.map'):
    """Return a graph of ``x @ matrix + 1``."""
    value = ir.Value(name='x', shape=ir.Shape(x.shape), type=FLOAT)
    weight = ir.Value(name=name, const_value=ir.tensor(matrix))
    product = ir.node('MatMul', [value, weight])
    product.outputs[0].shape, product.outputs[0].type = value.shape, FLOAT
    product.outputs[0].name = 'product'
    one = ir.Value(name='one', const_value=ir.tensor(np.ones(len(matrix), 'f4')))
    total = ir.node('Add', [product.outputs[0], one])
    (result,) = total.outputs
    result.name, result.shape, result.type = 'y', value.shape, FLOAT
    about = dict(initializers=[weight, one], opset_imports={'': 20})
    graph = ir.Graph([value], [result], nodes=[product, total], **about)
    return ir.Model(graph, ir_version=10)


@pytest.mark.parametrize('scale, most', [(1, 0.01), (-1, 1), (0.4, 1)])
def test_maps_near_the_identity_keep_small_channels_in_int8(scale, most, tmp_path):
    """Of a stream with one large channel; ``scale`` is the diagonal of the map."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 50, 16)).astype('f4')
    x[..., 3] *= 200
    matrix = (scale * np.eye(16) + rng.normal(size=(16, 16), scale=1e-3)).astype('f4')
    model, wanted = layer(x, matrix), x @ matrix + 1
    found = outputs(model, x, tmp_path / 'fp32.onnx')
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    quantised = _to_int8(model, nn.Identity())
    off = np.abs(outputs(quantised, x, tmp_path / 'int8.onnx') - wanted)
    small = np.delete(off, 3, axis=2).mean()
    assert most / 10 < small < most


def test_to_int8_quantises_the_backbone_and_vits_of_heads():
    vit = PlainViT(arch=dict(embed_dims=8, depth=1, num_heads=2), img_size=32)
    network = nn.ModuleDict(dict(head=nn.ModuleDict(dict(vit=vit, fc=nn.Linear(4, 4)))))
    x, matrix = np.zeros((1, 4), 'f4'), np.ones((4, 4), 'f4')
    for name in ('backbone.map', 'head.vit.blocks.0.mlp.fc1.weight.T'):
        quantised = _to_int8(layer(x, matrix, name), network)
        assert 'MatMulInteger' in [node.op_type for node in quantised.graph], name
    with pytest.raises(ValueError, match='--precision'):
        _to_int8(layer(x, matrix, 'head.fc.weight'), network)


@pytest.mark.parametrize('biased', [True, False])
def test_to_int8_quantises_parts_of_weights_and_gemms(biased, tmp_path):
    """Two layers, as in the attention of MiT: a half of a weight, and a Gemm."""
    rng = np.random.default_rng(0)
    x, whole, last, bias = (
        rng.normal(size=size).astype('f4') for size in ((5, 8), (16, 8), (8, 8), (8,))
    )
    # Most of the rounded values are in the middle: without VNNI, sums saturate.
    x[:2, 0] = 20, -20
    value = ir.Value(name='x', shape=ir.Shape(x.shape), type=FLOAT)
    weights = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name))
        for name, array in (
            ('backbone.in_proj', whole),
            ('backbone.out_proj', last),
            ('backbone.bias', bias),
            ('halves', np.array([8, 8])),
            ('zeros', np.array([0, 0])),
            ('ones', np.array([1, 1])),
        )
    ]
    split = ir.node('Split', [weights[0], weights[3]], num_outputs=2)
    turned = ir.node('Transpose', [split.outputs[1]], dict(perm=[1, 0]))
    halves, zeros, ones = weights[3:]
    # Optional inputs may be left out: here the axes.
    cut = ir.node('Slice', [turned.outputs[0], zeros, halves, None, ones])
    product = ir.node('MatMul', [value, cut.outputs[0]])
    inputs = [product.outputs[0], weights[1], *weights[2:3][:biased]]
    gemm = ir.node('Gemm', inputs, dict(transB=1))
    nodes = [split, turned, cut, product, gemm]
    for i, output in enumerate(o for node in nodes for o in node.outputs):
        output.name = f'value{i}'
    gemm.outputs[0].shape, gemm.outputs[0].type = value.shape, FLOAT
    about = dict(nodes=nodes, initializers=weights, opset_imports={'': 20})
    model = ir.Model(ir.Graph([value], [gemm.outputs[0]], **about), ir_version=10)
    wanted = outputs(model, x, tmp_path / 'fp32.onnx')
    np.testing.assert_allclose(
        wanted, x @ whole[8:].T @ last.T + biased * bias, rtol=1e-5, atol=1e-5
    )
    quantised = _to_int8(model, nn.Identity())
    kinds = [node.op_type for node in quantised.graph]
    assert (kinds.count('MatMulInteger'), kinds.count('Gemm')) == (2, 0)
    assert not {'Split', 'Transpose', 'Slice', 'MatMul'} & {*kinds}
    off = np.abs(outputs(quantised, x, tmp_path / 'int8.onnx') - wanted)
    assert 1e-4 < off.mean() < 0.1 * np.abs(wanted).mean()
