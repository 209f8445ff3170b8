"""Graphs that share one file of weights."""

import numpy as np
import pytest
from onnx_text import model_of
from safetensors.numpy import load_file

ir = pytest.importorskip('onnx_ir')
onnxruntime = pytest.importorskip('onnxruntime')
from snnet_mm.exports.shared_weights import share_weights  # noqa: E402

NUMBERS = np.arange(100, dtype=np.float32)


def save(path, shape, *steps, result='a'):
    """Save a graph of ``x`` through operators with a constant: ``(op, name, array)``.

    ``result`` is the name of what the first one gives.
    """
    results = ['x', result, *'bcd'[: len(steps) - 2], 'y']
    lines = [
        f'{results[i + 1]} = {op}({results[i]}, {name.replace(".", "__")})'
        for i, (op, name, _) in enumerate(steps)
    ]
    text = f'(float{shape} x) => (float[] y) {{ {" ".join(lines)} }}'
    ir.save(model_of(text, {name: array for _, name, array in steps}), path)


def run(path, x):
    (found,) = onnxruntime.InferenceSession(path).run(None, {'x': x})
    return found


def test_results_may_have_the_names_of_another_graphs_constants(tmp_path):
    paths = tmp_path / 'a.onnx', tmp_path / 'b.onnx'
    names = ('val_1', 'val_2'), ('val_2', 'val_1')
    for path, (name, result) in zip(paths, names, strict=True):
        double = 'Mul', 'two', np.array(2, 'f4')
        save(path, [100], double, ('Add', name, NUMBERS), result=result)
    weights = share_weights(paths)
    assert 400 < weights['bytes'] < 600  # the numbers, once
    for path in paths:
        np.testing.assert_array_equal(run(path, NUMBERS), 3 * NUMBERS)


def share_linear(folder, layers):
    """Save linear layers ``(weight (C, units), bias)``; return graphs and tensors.

    Asserts that the graphs compute the layers once their weights are shared.
    """
    paths = [folder / f'{i}.onnx' for i in range(len(layers))]
    for path, (weight, bias) in zip(paths, layers, strict=True):
        layer = ('MatMul', 'fc1.weight.T', weight), ('Add', 'fc1.bias', bias)
        save(path, [3, len(weight)], *layer)
    stored = load_file(folder / share_weights(paths)['name'])
    x = np.random.default_rng(1).random((3, len(weight)), 'f4')
    for path, (weight, bias) in zip(paths, layers, strict=True):
        np.testing.assert_allclose(run(path, x), x @ weight + bias, rtol=1e-5)
    return [ir.load(path).graph for path in paths], stored


def random_layer(units, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((16, units), 'f4'), rng.random(units, 'f4')


def assert_stored(stored, **wanted):
    assert stored.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(stored[name], array)


def test_narrow_layers_are_parts_of_wide_ones(tmp_path):
    """The first units of a layer are stored with all of them; other units apart."""
    (weight, bias), other = random_layer(96), random_layer(64, seed=2)
    wide, *narrow = ((weight[:, :n], bias[:n]) for n in (96, 32, 80))
    graphs, stored = share_linear(tmp_path, [narrow[0], wide, other, narrow[1], wide])
    assert_stored(
        stored,
        **{'fc1.weight': weight.T, 'fc1.weight.T@2': other[0]},
        **{'fc1.bias': bias, 'fc1.bias@2': other[1]},
    )
    assert {*graphs[0].initializers} == {'fc1.weight[:32]', 'fc1.bias[:32]'}
    assert [node.op_type for node in graphs[0]] == ['Transpose', 'MatMul', 'Add']
    # A layer that no other one is a part of is read as it is.
    assert [node.op_type for node in graphs[2]] == ['MatMul', 'Add']


def test_units_in_another_order_are_gathered(tmp_path):
    """As of narrow branches, beside the whole one; for any number of them."""
    weight, bias = random_layer(96)
    order = np.random.default_rng(0).permutation(96)
    layers = [(weight[:, i], bias[i]) for i in (np.arange(96), order[:64], order[:32])]
    graphs, stored = share_linear(tmp_path, layers)
    assert_stored(
        stored,
        **{'fc1.weight': weight.T, 'fc1.weight_units': order[:64]},
        **{'fc1.bias': bias, 'fc1.bias@2': bias[order[:64]]},
    )
    kinds = [node.op_type for node in graphs[2]]
    assert kinds == ['Gather', 'Transpose', 'MatMul', 'Add']


def test_a_weight_with_two_layouts_is_stored_once(tmp_path):
    """As of an embedding that is tied to a linear layer."""
    rng, path = np.random.default_rng(0), tmp_path / 'a.onnx'
    weight = rng.random((96, 16), 'f4')
    both = ('MatMul', 'linear.weight.T', weight.T), ('Gemm', 'linear.weight', weight)
    save(path, [3, 16], *both)
    assert share_weights([path])['bytes'] < 1.1 * weight.nbytes
    x = rng.random((3, 16), 'f4')
    np.testing.assert_allclose(run(path, x), x @ weight.T @ weight, rtol=1e-5)
    assert [*ir.load(path).graph.initializers] == ['linear.weight']


def test_share_weights_keeps_equal_values_of_several_shapes(tmp_path):
    """As a scalar and a vector of one element, which share their place in the file."""
    path, shape = tmp_path / 'a.onnx', ('Reshape', 'shape', np.array([100]))
    twos = dict(scalar=2, vector=[2], matrix=[[2]])
    factors = [('Mul', f'a.{name}', np.array(two, 'f4')) for name, two in twos.items()]
    save(path, [100], *factors, shape)
    share_weights([path])
    graph = ir.load(path).graph
    sizes = [tuple(v.shape) for n, v in graph.initializers.items() if n != 'shape']
    assert sorted(sizes) == [(), (1,), (1, 1)]
    np.testing.assert_array_equal(run(path, NUMBERS), 8 * NUMBERS)
