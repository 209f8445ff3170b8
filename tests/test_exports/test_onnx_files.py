"""Linear layers in int8, graphs in half precision."""

import numpy as np
import pytest
from onnx_text import model_of
from torch import nn

from snnet_mm.anchors import PlainViT

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.onnx_files import _to_fp16, _to_int8  # noqa: E402


def outputs(model, x, path):
    ir.save(model, path)
    return onnxruntime.InferenceSession(path).run(None, {'x': x})[0]


def layer(x, matrix, name='backbone.map'):
    """Return a model of ``x @ matrix + 1``."""
    size = ', '.join(map(str, x.shape))
    text = f"""(float[{size}] x) => (float[{size}] y) {{
        product = MatMul(x, {name.replace('.', '__')})
        y = Add(product, one)
    }}"""
    return model_of(text, {name: matrix, 'one': np.ones(len(matrix), 'f4')})


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
    text = f"""(float[5, 8] x) => (float[5, 8] y) {{
        first, second = Split(backbone__in_proj, halves)
        turned = Transpose<perm = [1, 0]>(second)
        cut = Slice(turned, zeros, halves, "", ones)
        product = MatMul(x, cut)
        y = Gemm<transB = 1>(product, backbone__out_proj{', backbone__bias' * biased})
    }}"""
    arrays = {'backbone.in_proj': whole, 'backbone.out_proj': last, 'halves': [8, 8]}
    arrays |= {'backbone.bias': bias} if biased else {}
    model = model_of(text, arrays | dict(zeros=[0, 0], ones=[1, 1]))
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


def test_to_fp16_keeps_norms_and_softmax_in_fp32(tmp_path):
    """A large channel overflows the squares of a norm, and the sums of a softmax."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 6, 8)).astype('f4')
    x[..., 3] *= 1000
    weight = rng.normal(size=(8, 8)).astype('f4')
    text = """(float[2, 6, 8] x) => (float[2, 6, 8] y) {
        normed = LayerNormalization <axis = -1> (x, one, zero)
        product = MatMul(normed, weight)
        y = Softmax <axis = -1> (product)
    }"""
    one, zero = np.ones(8, 'f4'), np.zeros(8, 'f4')
    model = model_of(text, dict(one=one, zero=zero, weight=weight))
    wanted = outputs(model, x, tmp_path / 'fp32.onnx')
    half = _to_fp16(model)
    assert np.abs(outputs(half, x, tmp_path / 'fp16.onnx') - wanted).max() < 1e-2
    kinds = {value.name: value.dtype for value in half.graph.initializers.values()}
    assert kinds['weight.fp16'] == ir.DataType.FLOAT16
    assert kinds['one'] == kinds['zero'] == ir.DataType.FLOAT
    of = {node.op_type: node for node in half.graph}
    for name in ('LayerNormalization', 'Softmax'):
        given = of[name].inputs[0]
        source = given.producer()
        cast = source is not None and source.op_type == 'Cast'
        assert given.is_graph_input() or cast, name
        if cast:
            assert source.attributes['to'].value == ir.DataType.FLOAT
    words = "precision='fp16' is invalid: expected fp32, as no operator has weights"
    with pytest.raises(ValueError, match=words):
        _to_fp16(model_of('(float[2] x) => (float[2] y) { y = Softmax(x) }', {}))
