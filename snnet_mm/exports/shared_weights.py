"""One file of weights for all ONNX graphs of a bundle."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
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
    """A weight of a graph; ``turned`` if its layout is ``(C, units)``.

    ``index`` are the rows of a stored tensor that it has; by default its first ones.
    """

    graph: onnx_ir.Graph
    value: onnx_ir.Value
    turned: bool = False
    index: onnx_ir.Value | None = None

    @property
    def units(self) -> int:
        return (*self.value.const_value.shape, 1)[1 if self.turned else 0]

    @property
    def rows(self) -> np.ndarray:
        """The weight with its units first."""
        array = np.atleast_1d(self.value.const_value.numpy())
        return np.ascontiguousarray(array.T if self.turned else array)


@dataclass(eq=False)
class _Tensor:
    """A tensor of the file, and the weights that consist of its rows."""

    rows: np.ndarray
    uses: list[_Use] = field(default_factory=list)
    name: str = ''

    @property
    def keeps_layout(self) -> bool:
        """Whether it is stored as ``(C, units)``, as all its uses read it."""
        number = len(self.rows)
        return all(u.turned and not u.index and u.units == number for u in self.uses)


class _Store:
    """The tensors of the file."""

    def __init__(self) -> None:
        self._by_first: dict[tuple, list[_Tensor]] = {}
        self._row: dict[tuple, tuple[_Tensor, int]] = {}

    @property
    def tensors(self) -> list[_Tensor]:
        return [tensor for alike in self._by_first.values() for tensor in alike]

    def add(self, rows: np.ndarray) -> tuple[_Tensor, np.ndarray | None]:
        """Return the tensor that has these rows, and which of its rows they are.

        None stands for its first rows. Longer tensors must be added first.
        """
        kind = rows.dtype.str, rows.shape[1:]
        alike = self._by_first.setdefault((*kind, rows[0].tobytes()), [])
        for tensor in alike:
            if np.array_equal(tensor.rows[: len(rows)], rows):
                return tensor, None
        if rows.ndim == 1:  # an index would be as large
            alike.append(tensor := _Tensor(rows))
            return tensor, None
        keys = [(*kind, blake2b(row, digest_size=16).digest()) for row in rows]
        places = [self._row.get(key) for key in keys]
        if len({place and place[0] for place in places}) == 1 and places[0]:
            index = np.array([i for _, i in places], np.int32)
            return places[0][0], index
        alike.append(tensor := _Tensor(rows))
        for i, key in enumerate(keys):
            self._row.setdefault(key, (tensor, i))
        return tensor, None


def share_weights(files: Sequence[Path]) -> dict:
    """Move the weights of ONNX files to one file beside them, without duplicates.

    A weight that consists of rows of a larger one, such as the projection into a narrow
    branch, is not stored: its graph gathers the rows, and transposes them for a linear
    layer. Runtimes do so once, on opening.

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
    """Return the tensors to store, with names, and their uses.

    Adds the indices of rows to the graphs.
    """
    import onnx_ir as ir

    store, indices = _Store(), {}
    for use in sorted(uses, key=lambda use: -use.units):
        tensor, index = store.add(use.rows)
        if index is not None:
            # Layers of a graph with the same units share one index.
            key = id(use.graph), index.tobytes()
            if key not in indices:
                name = f'{use.value.name}_units'
                value = ir.Value(name=name, const_value=ir.tensor(index, name=name))
                use.graph.register_initializer(value)
                indices[key] = _Use(use.graph, value)
            use = use._replace(index=indices[key].value)
        tensor.uses.append(use)
    for use in sorted(indices.values(), key=lambda use: -use.units):
        store.add(use.rows)[0].uses.append(use)
    taken: set[str] = set()
    for tensor in store.tensors:
        given = tensor.uses[0].value.name
        # Another graph may use the name of this constant for a node output.
        base = given if '.' in given else 'constant'
        base = base if tensor.keeps_layout else _unturned(base)
        numbered = (f'{base}@{n}' if n > 1 else base for n in count(1))
        tensor.name = next(n for n in numbered if _unturned(n) not in taken)
        taken.add(_unturned(tensor.name))
    for n, use in enumerate(use for tensor in store.tensors for use in tensor.uses):
        use.value.name = f'weight {n}'
    return store.tensors


def _move(tensor: _Tensor, weights: Path, offset: int) -> None:
    """Let graphs read a tensor from the file, where it begins at an offset."""
    import onnx_ir as ir

    # Derived weights last, as they read those that others hold.
    uses = sorted(tensor.uses, key=lambda use: use.turned or use.index is not None)
    for graph, value, turned, index in uses:
        found = value.const_value
        turned = turned and not tensor.keeps_layout
        shape = tuple(found.shape)[:: -1 if turned else 1]
        whole = len(tensor.rows)
        if index is not None:
            shape = whole, *shape[1:]
        partial = not tensor.keeps_layout and shape and shape[0] < whole
        name = f'{tensor.name}[:{shape[0]}]' if partial else tensor.name
        known = graph.initializers.get(name)
        if known is not None and tuple(known.shape) != shape:
            # Equal values of another shape, such as a scalar and a vector of one.
            name += f' as {"x".join(map(str, shape))}'
        number = math.prod(shape) * found.dtype.itemsize
        about = dict(dtype=found.dtype, shape=ir.Shape(shape), name=name)
        about |= dict(base_dir=weights.parent)
        stored = ir.ExternalTensor(weights.name, offset, int(number), **about)
        if not turned and index is None:
            value.name, value.const_value = name, stored
            continue
        if name not in graph.initializers:
            held = dict(shape=ir.Shape(shape), type=ir.TensorType(found.dtype))
            held = ir.Value(name=name, const_value=stored, **held)
            graph.register_initializer(held)
        nodes, held = [], graph.initializers[name]
        if index is not None:
            nodes.append(ir.node('Gather', [held, index]))
            held = nodes[-1].outputs[0]
        if turned:
            nodes.append(ir.node('Transpose', [held], dict(perm=[1, 0])))
        for node in nodes:
            node.outputs[0].name = f'{value.name} by {node.op_type}'
        value.replace_all_uses_with(nodes[-1].outputs[0])
        graph.insert_before(graph[0], nodes)
        del graph.initializers[value.name]


def _unturned(name: str) -> str:
    """Return the name of a weight without the suffix of transposed ones."""
    return re.sub(r'\.T(?=[_@]|$)', '', name)
