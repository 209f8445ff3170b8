"""Graphs as ONNX files that share their weights.

ONNX lets a graph point to bytes in another file. Here that is a safetensors file: one
copy of the weights serves any number of graphs, and can be read by name without onnx.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor

from snnet_mm.utils import atomic_path

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
    """Check that ONNX files can be written and run.

    Raises:
        ValueError: If a package is missing.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(
            f'ONNX graphs need {" and ".join(missing)}, which this environment lacks; '
            "the extra 'onnx' has them: pip install -c requirements/constraints.txt "
            "-e '.[onnx]' (option: --format)"
        )


def to_onnx(program: torch.export.ExportedProgram, images: Tensor) -> onnx_ir.Model:
    """A traced graph, and the images it was traced with, as an ONNX model.

    Raises:
        ValueError: If this version of torch cannot, as 2.6 with batch norm.
    """
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            exported = torch.onnx.export(
                program,
                (images,),
                input_names=[INPUT],
                output_names=output_names(len(program.graph_signature.user_outputs)),
                dynamo=True,
                dynamic_shapes={INPUT: {0: 'batch'}},
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).partition('(args')[0]
            raise ValueError(
                f'torch {torch.__version__} cannot write this graph as ONNX: {reason}; '
                'the torch of requirements/constraints.txt can (option: --format)'
            ) from error
    return ClearMetadataAndDocStringPass()(exported.model).model


def save_onnx(model: onnx_ir.Model, path: str | os.PathLike) -> None:
    """Write one graph with its weights inside."""
    import onnx_ir as ir

    with atomic_path(path) as temporary:
        ir.save(model, temporary)


class OnnxBundle:
    """ONNX graphs and one file with the weights of all of them, each stored once.

    Args:
        folder: Where the files go.
        weights: Name of the file of weights.
    """

    def __init__(self, folder: str | os.PathLike, weights: str = WEIGHTS) -> None:
        self.path = Path(folder) / weights
        self._graphs: dict[str, onnx_ir.Model] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._stored: dict[bytes, str] = {}  # name by content

    def add(
        self, file: str, program: torch.export.ExportedProgram, images: Tensor
    ) -> None:
        """Add a traced graph, and the images it was traced with, as a file.

        Weights keep the names that they have in the checkpoint. Those that the exporter
        transposes, which it calls after an operation, get theirs back with ``.T``.
        """
        import onnx_ir as ir

        model, names = to_onnx(program, images), _names_of(program)
        for value in list(model.graph.initializers.values()):
            array = value.const_value.numpy()
            content = _digest(array)
            if array.size <= SMALL and content not in names:
                continue
            if content not in self._stored:
                name = unique = names.get(content, value.name.removeprefix('model.'))
                number = 1
                while unique in self._arrays:
                    number += 1
                    unique = f'{name}@{number}'
                self._stored[content] = unique
                self._arrays[unique] = np.ascontiguousarray(array)
            name = self._stored[content]
            value.name = name
            value.const_value = ir.tensor(self._arrays[name], name=name)
        self._graphs[file] = model

    def save(self) -> Path:
        """Write all files; returns the path of the weights."""
        import onnx_ir as ir

        with atomic_path(self.path) as temporary:
            temporary.write_bytes(save(self._arrays))
        places = _places(self.path)
        for file, model in self._graphs.items():
            for name, value in model.graph.initializers.items():
                if name in places:
                    tensor = value.const_value
                    value.const_value = ir.ExternalTensor(
                        self.path.name,
                        *places[name],
                        tensor.dtype,
                        shape=tensor.shape,
                        name=name,
                        base_dir=self.path.parent,
                    )
            with atomic_path(self.path.parent / file) as temporary:
                ir.save(model, temporary)
        return self.path


def open_onnx(path: str | os.PathLike) -> onnxruntime.InferenceSession:
    """An ONNX file in onnxruntime, with as many threads as torch has."""
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


def _places(path: Path) -> dict[str, tuple[int, int]]:
    """Offset and length in bytes of every tensor of a safetensors file."""
    with open(path, 'rb') as file:
        header_bytes = int.from_bytes(file.read(8), 'little')
        header = json.loads(file.read(header_bytes))
    header.pop('__metadata__', None)
    places = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        places[name] = (8 + header_bytes + begin, end - begin)
    return places


def _names_of(program: torch.export.ExportedProgram) -> dict[bytes, str]:
    """Names of the weights of a traced graph, as they are and transposed."""
    names = {}
    for name, tensor in program.state_dict.items():
        name, array = name.removeprefix('model.'), tensor.detach().numpy()
        names[_digest(array.T)] = f'{name}.T'
        names[_digest(array)] = name
    return names


def _digest(array: np.ndarray) -> bytes:
    """Equal for arrays of equal type, shape and values."""
    content = hashlib.sha256(f'{array.dtype.str} {array.shape} '.encode())
    content.update(np.ascontiguousarray(array).data)
    return content.digest()
