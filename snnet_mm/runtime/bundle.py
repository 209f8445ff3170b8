"""The files of a bundle: its manifest, and graphs opened in their runtime."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from .checks import check

MANIFEST = 'manifest.json'
VERSION = 2  # of the layout of manifests; the first had no number
Run = Callable[..., list[np.ndarray]]  # of arrays, in the order of the inputs


def read_manifest(folder: str | os.PathLike) -> dict:
    """Read the manifest of an export; one of another version is refused."""
    path = Path(folder, MANIFEST)
    try:
        manifest = json.loads(path.read_text(encoding='utf-8'))
        version = manifest.get('version')
    except (AttributeError, OSError, ValueError) as error:
        made_by = 'tools/export_stitch.py writes such folders'
        raise ValueError(f'{path} cannot be read: {error}; {made_by}') from None
    allowed = f'{VERSION}; export the stitches again'
    check(version == VERSION, f'{path.name}: version', version, allowed)
    return manifest


def check_whole(folder: str | os.PathLike, files: Iterable[Mapping | None]) -> None:
    """Refuse files of a manifest whose sizes are not as it says."""
    for file in filter(None, files):
        path = Path(folder, file['name'])
        found = path.stat().st_size if path.is_file() else 0
        allowed = f'{file["bytes"]} bytes, as {MANIFEST} says; the file is damaged'
        check(found == file['bytes'], 'file', f'{path} of {found} bytes', allowed)


def open_onnx(path: Path, threads: int, options: Mapping) -> Run:
    """Open an ONNX file in onnxruntime."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        path, settings, providers=['CPUExecutionProvider']
    )
    names = [found.name for found in session.get_inputs()]
    return lambda *arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def open_openvino(path: Path, threads: int, options: Mapping) -> Run:
    """Open an OpenVINO file, with the precision that the manifest says."""
    import openvino

    settings = {'INFERENCE_NUM_THREADS': threads, **options}
    model = openvino.Core().compile_model(path, 'CPU', settings)

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        # A request of its own, for calls of several threads.
        found = model.create_infer_request().infer(list(arrays))
        return [found[output].copy() for output in model.outputs]

    return run


OPENERS = {'onnx': open_onnx, 'openvino': open_openvino}
