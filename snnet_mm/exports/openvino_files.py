"""Stitches in OpenVINO's intermediate representation: ``.xml`` and ``.bin``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from snnet_mm.utils import check

from .graph import StitchBuild
from .onnx_files import save_onnx, to_onnx


def write_openvino(build: StitchBuild, path: Path, precision: str) -> None:
    """Write the two files of a graph; calibrate int8 on training images.

    NNCF quantises the head, too. Norms and the softmax of attention stay in float.
    """
    model = to_onnx(build)
    pools = any(node.op_type == 'RoiAlign' for node in model.graph)
    allowed = 'onnx for two-stage detectors: OpenVINO pools regions differently'
    check(not pools, '--format', 'openvino', allowed)
    import openvino

    with TemporaryDirectory() as folder:
        onnx = Path(folder, 'model.onnx')
        save_onnx(model, onnx)
        model = openvino.convert_model(onnx)
        if precision == 'int8':
            import nncf

            images = build.calibration_images()
            data = nncf.Dataset([image[None].numpy() for image in images])
            settings = dict(model_type=nncf.ModelType.TRANSFORMER)
            model = nncf.quantize(model, data, subset_size=len(images), **settings)
        openvino.save_model(model, path, compress_to_fp16=False)
