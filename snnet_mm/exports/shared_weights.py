"""One file of weights for all ONNX graphs of a bundle."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from safetensors.numpy import save

from snnet_mm.runtime.bundle import describe_file, name_by_content

from .onnx_files import save_onnx

if TYPE_CHECKING:
    import onnx_ir

# Constants of up to this size that are not weights, such as shapes and scales, stay in
# the graph: onnxruntime needs their values for shape inference.
SMALL = 64
WEIGHTS = 'weights.safetensors'  # of a bundle; a digest is added to the name
PRODUCTS = 'MatMul', 'MatMulInteger'


class _Use(NamedTuple):
    """A weight of a graph; ``turned`` if its layout is ``(C, units)``."""

    graph: onnx_ir.Graph
    value: onnx_ir.Value
    turned: bool

    @property
    def rows(self) -> np.ndarray:
        """The weight with its units first."""
        array = np.atleast_1d(self.value.const_value.numpy())
        return array.T if self.turned else array


@dataclass
class _Tensor:
    """A tensor of the file, and the weights that are its first rows."""

    rows: np.ndarray
    uses: list[_Use] = field(default_factory=list)
    name: str = ''

    @property
    def keeps_layout(self) -> bool:
        """Whether it is stored as ``(C, units)``, as all its uses read it."""
        whole = {len(use.rows) for use in self.uses} == {len(self.rows)}
        return whole and all(use.turned for use in self.uses)


def share_weights(files: Sequence[Path]) -> dict:
    """Move the weights of ONNX files to one file beside them, without duplicates.

    A weight that equals the first units of a larger one, such as the projection into a
    narrow branch, is a part of it. Linear layers then read ``(units, C)`` through a
    ``Transpose``, which onnxruntime folds when it opens a graph.

    Returns the entry of the weights file in the manifest.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import DeduplicateInitializersPass

    models = {}
    for file in files:
        # All int8 zero points are equal.
        merge = DeduplicateInitializersPass(size_limit=2**31)
        models[file] = merge(ir.load(file)).model
    tensors = _merged([use for m in models.values() for use in _uses_in(m.graph)])
    arrays = {t.name: t.rows.T if t.keeps_layout else t.rows for t in tensors}
    content = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    name = name_by_content(WEIGHTS, hashlib.sha256(content).hexdigest())
    weights = files[0].with_name(name)
    weights.write_bytes(content)
    # A safetensors file begins with the length of its header, in 8 bytes.
    start = 8 + int.from_bytes(content[:8], 'little')
    header = json.loads(content[8:start])
    for tensor in tensors:
        _move(tensor, weights, start + header[tensor.name]['data_offsets'][0])
    for file, model in models.items():
        save_onnx(model, file)
    return describe_file(weights)


def _uses_in(graph: onnx_ir.Graph) -> Iterator[_Use]:
    """Yield the weights of a graph that are moved to the file."""
    for value in graph.initializers.values():
        # Only names of weights from a checkpoint contain dots.
        if value.const_value.size > SMALL or '.' in value.name:
            uses = [(use.node.op_type, use.idx) for use in value.uses()]
            multiplies = uses and all(op in PRODUCTS and i == 1 for op, i in uses)
            plain = multiplies and not value.is_graph_output()
            matrix = len(value.const_value.shape) == 2
            yield _Use(graph, value, bool(plain) and matrix)


def _merged(uses: Iterable[_Use]) -> list[_Tensor]:
    """Return the tensors to store, with names, and give all weights passing names."""
    by_first_row: dict[tuple, list[_Tensor]] = {}
    for use in sorted(uses, key=lambda use: -len(use.rows)):
        rows = use.rows
        key = use.value.const_value.dtype, rows.shape[1:], rows[0].tobytes()
        alike = by_first_row.setdefault(key, [])
        holds = (t for t in alike if np.array_equal(t.rows[: len(rows)], rows))
        if (tensor := next(holds, None)) is None:
            alike.append(tensor := _Tensor(rows))
        tensor.uses.append(use)
    tensors = [tensor for alike in by_first_row.values() for tensor in alike]
    taken: set[str] = set()
    for tensor in tensors:
        given = tensor.uses[0].value.name
        # Another graph may use the name of this constant for a node output.
        base = given if '.' in given else 'constant'
        if not tensor.keeps_layout:
            base = re.sub(r'\.T(?=_|$)', '', base)
        numbered = (f'{base}@{n}' if n > 1 else base for n in count(1))
        tensor.name = next(n for n in numbered if not {n, f'{n}.T'} & taken)
        taken |= {tensor.name, f'{tensor.name}.T'}
    for n, use in enumerate(use for tensor in tensors for use in tensor.uses):
        use.value.name = f'weight {n}'
    return tensors


def _move(tensor: _Tensor, weights: Path, offset: int) -> None:
    """Let graphs read a tensor from the file, where it begins at an offset."""
    import onnx_ir as ir

    for graph, value, turned in sorted(tensor.uses, key=lambda use: use.turned):
        found = value.const_value
        turned = turned and not tensor.keeps_layout
        shape = tuple(found.shape)[:: -1 if turned else 1]
        partial = not tensor.keeps_layout and shape and shape[0] < len(tensor.rows)
        name = f'{tensor.name}[:{shape[0]}]' if partial else tensor.name
        about = dict(dtype=found.dtype, shape=ir.Shape(shape), name=name)
        about |= dict(base_dir=weights.parent)
        stored = ir.ExternalTensor(weights.name, offset, found.nbytes, **about)
        if not turned:
            value.name, value.const_value = name, stored
            continue
        if name not in graph.initializers:
            held = dict(shape=ir.Shape(shape), type=ir.TensorType(found.dtype))
            held = ir.Value(name=name, const_value=stored, **held)
            graph.register_initializer(held)
        node = ir.node('Transpose', [graph.initializers[name]], dict(perm=[1, 0]))
        node.outputs[0].name = f'{name}.T'
        value.replace_all_uses_with(node.outputs[0])
        graph.insert_before(graph[0], node)
        del graph.initializers[value.name]
