"""Graphs that share one file of weights."""

import numpy as np
import pytest

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.onnx_files import share_weights  # noqa: E402

NUMBERS = np.arange(100, dtype=np.float32)


def doubled_and_shifted(constant, result):
    """A graph of ``2 x + numbers``, whose names are given."""
    x = ir.Value(name='x', type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([100]))
    shift = ir.Value(name=constant, const_value=ir.tensor(NUMBERS, name=constant))
    doubled = ir.node('Add', [x, x])
    doubled.outputs[0].name = result
    node = ir.node('Add', [doubled.outputs[0], shift])
    out = node.outputs[0]
    out.name, out.shape, out.type = 'y', x.shape, x.type
    graph = ir.Graph(
        [x], [out], nodes=[doubled, node], initializers=[shift], opset_imports={'': 20}
    )
    return ir.Model(graph, ir_version=10)


def test_results_may_have_the_names_of_another_graphs_constants(tmp_path):
    names = {'a.onnx': ('val_1', 'val_2'), 'b.onnx': ('val_2', 'val_1')}
    for name, values in names.items():
        ir.save(doubled_and_shifted(*values), tmp_path / name)
    weights = share_weights([tmp_path / name for name in names])
    assert 400 < weights['bytes'] < 600  # the numbers, once
    for name in names:
        session = onnxruntime.InferenceSession(tmp_path / name)
        (found,) = session.run(None, {'x': NUMBERS})
        np.testing.assert_array_equal(found, 3 * NUMBERS)
