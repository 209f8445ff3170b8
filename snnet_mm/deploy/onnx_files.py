"""Graphs as ONNX files that point to their weights in one safetensors file."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import warnings
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from snnet_mm.utils import atomic_path, check, refusal

from .graph import INPUT, Predictions, output_names

if TYPE_CHECKING:
    import onnx_ir
    import onnxruntime

# What is no weight, such as shapes and scales, stays in the graph up to this size:
# onnxruntime must know it to infer the shapes of the rest.
SMALL = 64
PACKAGES = ('onnx', 'onnxruntime', 'onnxscript')
WEIGHTS = 'weights.safetensors'  # of a bundle


def require_onnx() -> None:
    """Refuse to write ONNX files where a package for it is missing."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    allowed = f"'onnx' after pip install -e '.[onnx]', for {', '.join(missing)}"
    check(not missing, '--format', 'onnx', allowed)


def to_onnx(program: torch.export.ExportedProgram, images: Tensor) -> onnx_ir.Model:
    """Turn a traced graph, and the images it was traced with, into an ONNX model."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    outputs = output_names(len(program.graph_signature.user_outputs))
    settings = dict(dynamo=True, dynamic_shapes={INPUT: {0: 'batch'}}, verbose=False)
    settings |= dict(input_names=[INPUT], output_names=outputs)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            exported = torch.onnx.export(program, (images,), **settings)
        except torch.onnx.OnnxExporterError as error:
            # Such as torch 2.6 with batch norm.
            allowed = 'what torch can write; that of requirements/constraints.txt can'
            raise refusal('--format', 'onnx', allowed) from error
    return ClearMetadataAndDocStringPass()(exported.model).model


def save_onnx(model: onnx_ir.Model, path: str | os.PathLike) -> None:
    """Write one graph."""
    import onnx_ir as ir

    with atomic_path(path) as temporary:
        ir.save(model, temporary)


class OnnxBundle:
    """ONNX graphs and one file with the weights of all of them, each stored once."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self.path = Path(folder) / WEIGHTS
        self._graphs: dict[str, onnx_ir.Model] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._stored: dict[bytes, str] = {}  # name by content

    def add(
        self, file: str, program: torch.export.ExportedProgram, images: Tensor
    ) -> None:
        """Add a traced graph, and the images it was traced with, as a file.

        Weights keep the names that they have in the checkpoint, ``.T`` if transposed.
        """
        import onnx_ir as ir

        model, names = to_onnx(program, images), {}
        for name, tensor in program.state_dict.items():
            name, array = name.removeprefix('model.'), tensor.detach().numpy()
            names |= {_digest(array.T): f'{name}.T', _digest(array): name}
        for value in list(model.graph.initializers.values()):
            array = value.const_value.numpy()
            content = _digest(array)
            if array.size <= SMALL and content not in names:
                continue
            if content not in self._stored:
                base = names.get(content, value.name.removeprefix('model.'))
                numbered = (f'{base}@{n}' if n > 1 else base for n in count(1))
                name = next(n for n in numbered if n not in self._arrays)
                self._stored[content] = name
                self._arrays[name] = np.ascontiguousarray(array)
            value.name = name = self._stored[content]
            value.const_value = ir.tensor(self._arrays[name], name=name)
        self._graphs[file] = model

    def save(self) -> Path:
        """Write all files; return the path of the weights."""
        import onnx_ir as ir

        content = save(self._arrays)
        with atomic_path(self.path) as temporary:
            temporary.write_bytes(content)
        # A safetensors file begins with the length of its header, in 8 bytes.
        start = 8 + int.from_bytes(content[:8], 'little')
        header = json.loads(content[8:start])
        for file, model in self._graphs.items():
            for name in header.keys() & model.graph.initializers.keys():
                value = model.graph.initializers[name]
                begin, end = header[name]['data_offsets']
                value.const_value = ir.ExternalTensor(
                    self.path.name,
                    start + begin,
                    end - begin,
                    dtype=value.const_value.dtype,
                    shape=value.const_value.shape,
                    name=name,
                    base_dir=self.path.parent,
                )
            save_onnx(model, self.path.parent / file)
        return self.path


def open_onnx(path: str | os.PathLike) -> onnxruntime.InferenceSession:
    """Open an ONNX file in onnxruntime, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(
        path, options, providers=['CPUExecutionProvider']
    )


def run_onnx(path: str | os.PathLike, images: Tensor) -> Predictions:
    """Run an ONNX file on images ``(B, 3, H, W)``."""
    arrays = open_onnx(path).run(None, {INPUT: images.numpy()})
    outputs = tuple(map(torch.from_numpy, arrays))
    return outputs[0] if len(outputs) == 1 else outputs


def _digest(array: np.ndarray) -> bytes:
    content = hashlib.sha256(f'{array.dtype.str} {array.shape} '.encode())
    content.update(np.ascontiguousarray(array).data)
    return content.digest()
