"""ONNX models from text, for tests of graphs."""

import numpy as np
import onnx_ir as ir


def model_of(text, arrays):
    """Return the model of a graph in ONNX's syntax, with constants by name.

    In the text, ``__`` stands for the dots in names of weights.
    """
    constants = [
        ir.tensor(np.asarray(array), name=name.replace('.', '__'))
        for name, array in arrays.items()
    ]
    text = f'<ir_version: 10, opset_import: ["": 20]> graph {text}'
    model = ir.from_onnx_text(text, initializers=constants)
    for value in [*model.graph.initializers.values()]:
        value.name = value.name.replace('__', '.')
    return model
