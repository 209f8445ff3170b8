"""Linear layers in int8."""

import numpy as np
import pytest

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.onnx_files import _to_int8  # noqa: E402

FLOAT = ir.TensorType(ir.DataType.FLOAT)


def outputs(model, x, path):
    ir.save(model, path)
    return onnxruntime.InferenceSession(path).run(None, {'x': x})[0]


@pytest.mark.parametrize('scale, most', [(1, 0.01), (-1, 1), (0.4, 1)])
def test_maps_near_the_identity_keep_small_channels_in_int8(scale, most, tmp_path):
    """Of a stream with one large channel; ``scale`` is the diagonal of the map."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 50, 16)).astype('f4')
    x[..., 3] *= 200
    matrix = (scale * np.eye(16) + rng.normal(size=(16, 16), scale=1e-3)).astype('f4')
    value = ir.Value(name='x', shape=ir.Shape(x.shape), type=FLOAT)
    weight = ir.Value(name='backbone.map', const_value=ir.tensor(matrix))
    product = ir.node('MatMul', [value, weight])
    product.outputs[0].shape, product.outputs[0].type = value.shape, FLOAT
    product.outputs[0].name = 'product'
    one = ir.Value(name='one', const_value=ir.tensor(np.ones(16, 'f4')))
    total = ir.node('Add', [product.outputs[0], one])
    (result,) = total.outputs
    result.name, result.shape, result.type = 'y', value.shape, FLOAT
    about = dict(initializers=[weight, one], opset_imports={'': 20})
    graph = ir.Graph([value], [result], nodes=[product, total], **about)
    model = ir.Model(graph, ir_version=10)
    wanted = x @ matrix + 1
    found = outputs(model, x, tmp_path / 'fp32.onnx')
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    off = np.abs(outputs(_to_int8(model), x, tmp_path / 'int8.onnx') - wanted)
    small = np.delete(off, 3, axis=2).mean()
    assert most / 10 < small < most
