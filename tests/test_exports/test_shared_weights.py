"""Graphs that share one file of weights."""

import numpy as np
import pytest
from safetensors.numpy import load_file

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.shared_weights import share_weights  # noqa: E402

NUMBERS = np.arange(100, dtype=np.float32)


def constant(name, array):
    return ir.Value(name=name, const_value=ir.tensor(array, name=name))


def save(path, shape, nodes, constants):
    """Save a graph of ``x``; its last node gives ``y``."""
    x, out = nodes[0].inputs[0], nodes[-1].outputs[0]
    x.type = out.type = ir.TensorType(ir.DataType.FLOAT)
    x.name, x.shape, out.name = 'x', ir.Shape(shape), 'y'
    about = dict(nodes=nodes, initializers=constants, opset_imports={'': 20})
    ir.save(ir.Model(ir.Graph([x], [out], **about), ir_version=10), path)


def save_sum(path, name, result):
    """Save a graph of ``2 x + NUMBERS``, whose names are given."""
    x, shift = ir.Value(), constant(name, NUMBERS)
    doubled = ir.node('Add', [x, x])
    doubled.outputs[0].name = result
    save(path, [100], [doubled, ir.node('Add', [doubled.outputs[0], shift])], [shift])


def run(path, x):
    (found,) = onnxruntime.InferenceSession(path).run(None, {'x': x})
    return found


def test_results_may_have_the_names_of_another_graphs_constants(tmp_path):
    names = {'a.onnx': ('val_1', 'val_2'), 'b.onnx': ('val_2', 'val_1')}
    for name, values in names.items():
        save_sum(tmp_path / name, *values)
    weights = share_weights([tmp_path / name for name in names])
    assert 400 < weights['bytes'] < 600  # the numbers, once
    for name in names:
        np.testing.assert_array_equal(run(tmp_path / name, NUMBERS), 3 * NUMBERS)


def save_linear(path, weight, bias):
    """Save a graph of a linear layer, with its weight ``(C, units)``."""
    x = ir.Value()
    constants = constant('fc1.weight.T', weight), constant('fc1.bias', bias)
    product = ir.node('MatMul', [x, constants[0]])
    added = ir.node('Add', [product.outputs[0], constants[1]])
    save(path, [3, len(weight)], [product, added], constants)


def test_narrow_layers_are_parts_of_wide_ones(tmp_path):
    """The first units of a layer are stored with all of them; other units apart."""
    rng = np.random.default_rng(0)
    weight, bias = rng.random((16, 96), 'f4'), rng.random(96, 'f4')
    other = rng.random((16, 64), 'f4'), rng.random(64, 'f4')
    layers = dict(a=(weight[:, :32], bias[:32]), b=(weight, bias), c=other)
    layers |= dict(d=(weight[:, :80], bias[:80]), e=(weight, bias))
    paths = [tmp_path / f'{name}.onnx' for name in layers]
    for path, arrays in zip(paths, layers.values(), strict=True):
        save_linear(path, *arrays)
    weights = share_weights(paths)
    stored = load_file(tmp_path / weights['name'])
    np.testing.assert_array_equal(stored.pop('fc1.weight'), weight.T)
    np.testing.assert_array_equal(stored.pop('fc1.weight.T@2'), other[0])
    np.testing.assert_array_equal(stored.pop('fc1.bias'), bias)
    np.testing.assert_array_equal(stored.pop('fc1.bias@2'), other[1])
    assert not stored
    x = rng.random((3, 16), 'f4')
    for path, (w, b) in zip(paths, layers.values(), strict=True):
        np.testing.assert_allclose(run(path, x), x @ w + b, rtol=1e-5)
    graph = ir.load(paths[0]).graph
    assert {*graph.initializers} == {'fc1.weight[:32]', 'fc1.bias[:32]'}
    assert [node.op_type for node in graph] == ['Transpose', 'MatMul', 'Add']
    # A layer that no other one is a part of is read as it is.
    assert [node.op_type for node in ir.load(paths[2]).graph] == ['MatMul', 'Add']


def test_units_in_another_order_are_gathered(tmp_path):
    """As of narrow branches, beside the whole one; for any number of them."""
    rng = np.random.default_rng(0)
    weight, bias = rng.random((16, 96), 'f4'), rng.random(96, 'f4')
    order = rng.permutation(96)
    layers = [np.arange(96), order[:64], order[:32]]
    paths = [tmp_path / f'{i}.onnx' for i in range(3)]
    for path, units in zip(paths, layers, strict=True):
        save_linear(path, weight[:, units], bias[units])
    weights = share_weights(paths)
    stored = load_file(tmp_path / weights['name'])
    np.testing.assert_array_equal(stored.pop('fc1.weight'), weight.T)
    np.testing.assert_array_equal(stored.pop('fc1.weight_units'), order[:64])
    np.testing.assert_array_equal(stored.pop('fc1.bias'), bias)
    np.testing.assert_array_equal(stored.pop('fc1.bias@2'), bias[order[:64]])
    assert not stored
    x = rng.random((3, 16), 'f4')
    for path, units in zip(paths, layers, strict=True):
        wanted = (x @ weight + bias)[:, units]
        np.testing.assert_allclose(run(path, x), wanted, rtol=1e-5)
    kinds = [node.op_type for node in ir.load(paths[2]).graph]
    assert kinds == ['Gather', 'Transpose', 'MatMul', 'Add']


def test_a_weight_with_two_layouts_is_stored_once(tmp_path):
    """As of an embedding that is tied to a linear layer."""
    rng = np.random.default_rng(0)
    weight, x = rng.random((96, 16), 'f4'), ir.Value()
    constants = constant('linear.weight.T', weight.T), constant('linear.weight', weight)
    first = ir.node('MatMul', [x, constants[0]])
    second = ir.node('Gemm', [first.outputs[0], constants[1]])
    path = tmp_path / 'a.onnx'
    save(path, [3, 16], [first, second], constants)
    assert share_weights([path])['bytes'] < 1.1 * weight.nbytes
    x = rng.random((3, 16), 'f4')
    np.testing.assert_allclose(run(path, x), x @ weight.T @ weight, rtol=1e-5)
    assert [*ir.load(path).graph.initializers] == ['linear.weight']


def save_sum_of_layers(path, *weights):
    """Save a graph of the sum of linear layers, with weights ``(C, units)``."""
    x = ir.Value()
    constants = [constant(f'fc{n}.weight.T', w) for n, w in enumerate(weights)]
    first, second = (ir.node('MatMul', [x, weight]) for weight in constants)
    added = ir.node('Add', [first.outputs[0], second.outputs[0]])
    save(path, [3, len(weights[0])], [first, second, added], constants)


def test_layers_of_the_same_units_share_an_index(tmp_path):
    rng = np.random.default_rng(0)
    wide = rng.random((2, 16, 96), 'f4')
    narrow = wide[..., rng.permutation(96)[:24]]
    paths = [tmp_path / 'wide.onnx', tmp_path / 'narrow.onnx']
    save_sum_of_layers(paths[0], *wide)
    save_sum_of_layers(paths[1], *narrow)
    weights = share_weights(paths)
    stored = load_file(tmp_path / weights['name'])
    assert sorted(a.shape for a in stored.values()) == [(24,), (96, 16), (96, 16)]
    x = rng.random((3, 16), 'f4')
    np.testing.assert_allclose(run(paths[1], x), (x @ narrow).sum(0), rtol=1e-5)


def test_share_weights_keeps_equal_values_of_several_shapes(tmp_path):
    """As a scalar and a vector of one element, which share their place in the file."""
    x, path = ir.Value(), tmp_path / 'a.onnx'
    constants = [
        constant('a.scalar', np.array(2, 'f4')),
        constant('a.vector', np.array([2], 'f4')),
        constant('a.matrix', np.array([[2]], 'f4')),
    ]
    nodes, last = [], x
    for value in constants:
        nodes.append(ir.node('Mul', [last, value]))
        last = nodes[-1].outputs[0]
    save(
        path,
        [100],
        [
            *nodes,
            ir.node('Reshape', [last, shape := constant('shape', np.array([100]))]),
        ],
        [*constants, shape],
    )
    share_weights([path])
    graph = ir.load(path).graph
    sizes = [tuple(v.shape) for n, v in graph.initializers.items() if n != 'shape']
    assert sorted(sizes) == [(), (1,), (1, 1)]
    np.testing.assert_array_equal(run(path, NUMBERS), 8 * NUMBERS)
