"""Graphs as ONNX files."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from snnet_mm.anchors import PlainViT
from snnet_mm.utils import atomic_path, check, refusal
from snnet_mm.utils.logging import at_least

from .description import INPUT, output_names
from .graph import StitchBuild, trace

if TYPE_CHECKING:
    import onnx
    import onnx_ir

# Operators with sums or powers over many values: in half precision they overflow, or
# lose small values.
IN_FP32 = 'LayerNormalization', 'InstanceNormalization', 'Softmax', 'LogSoftmax'
IN_FP32 += 'ReduceMean', 'ReduceSum', 'ReduceL2', 'Pow', 'Exp', 'Sigmoid'
SCALINGS = 'Sub', 'Div', 'Mul', 'Add'
# Operators that take parts of weights.
PARTS = {'Gather', 'Reshape', 'Slice', 'Split', 'Squeeze', 'Transpose', 'Unsqueeze'}


def write_onnx(build: StitchBuild, path: Path, precision: str) -> None:
    """Write an ONNX file in a precision.

    Weights keep their names in the checkpoint, with the suffix ``.T`` if transposed.
    """
    if build.onnx is None:  # torch cannot convert data-dependent shapes twice
        build.onnx = _convert(build)
    model = build.onnx.clone()
    if precision == 'int8':
        model = _to_int8(model, build.model)
    elif precision == 'fp16':
        model = _to_fp16(model)
    save_onnx(model, path)


def save_onnx(model: onnx_ir.Model, path: str | os.PathLike) -> None:
    """Write one graph atomically."""
    import onnx_ir as ir

    with atomic_path(path) as temporary:
        ir.save(model, temporary)


def _convert(build: StitchBuild) -> onnx_ir.Model:
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    program = trace(build)
    outputs = output_names(build.model, len(program.graph_signature.user_outputs))
    settings = dict(input_names=[INPUT], output_names=outputs)
    batch = {0: 'batch'} if len(build.images) > 1 else {}
    settings |= dict(dynamic_shapes={INPUT: batch})
    # onnxscript warns of every node that it does not fold.
    script = logging.getLogger('onnxscript')
    with warnings.catch_warnings(), at_least(logging.ERROR, script):
        warnings.simplefilter('ignore')
        try:
            exported = torch.onnx.export(
                program, (build.images,), dynamo=True, verbose=False, **settings
            )
        except torch.onnx.OnnxExporterError as error:
            # For example, torch 2.6 cannot export batch norm.
            other = 'mm, or the torch version of requirements/constraints.txt'
            raise refusal('--format', 'onnx', other) from error
    model = ClearMetadataAndDocStringPass()(exported.model).model
    _register_constants(model)
    _name_weights(model, program)
    return model


def _register_constants(model: onnx_ir.Model) -> None:
    """Register constants that the optimizer displaced by others of the same name."""
    known = model.graph.initializers
    for node in model.graph:
        for value in node.inputs:
            if value is None or value.const_value is None or value.producer():
                continue
            if known.get(value.name) is not value:
                value.name = f'{value.name}@{node.name}'
                model.graph.register_initializer(value)


def _name_weights(model: onnx_ir.Model, program: torch.export.ExportedProgram) -> None:
    """Give weights their names in the checkpoint."""
    names = {}
    for name, tensor in program.state_dict.items():
        name, array = name.removeprefix('model.'), tensor.detach().numpy()
        names |= {_digest(array.T): f'{name}.T', _digest(array): name}
    for value in list(model.graph.initializers.values()):
        array = value.const_value.numpy()
        name = names.get(_digest(array), value.name.removeprefix('model.'))
        if name not in model.graph.initializers:
            value.name = name


def _to_int8(model: onnx_ir.Model, network: nn.Module) -> onnx_ir.Model:
    """Quantise linear layers of ViTs and backbones, with dynamic scales of activations.

    Besides the backbone, these are the blocks in a head, such as EoMT's.
    """
    import onnx_ir as ir
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    vits = [n for n, m in network.named_modules() if isinstance(m, PlainViT)]
    places = tuple(f'{name}.' for name in ('backbone', *vits))
    _fold_weights(model, places)
    chosen, linear = [], []
    for node in model.graph:
        if node.op_type not in ('MatMul', 'Gemm'):
            continue
        weight = node.inputs[1]
        if not weight.name.startswith(places):
            continue
        # The quantiser selects nodes by name.
        node.name = node.name or node.outputs[0].name
        if node.op_type == 'MatMul':
            linear.append(node)
            chosen.append(node.name)
        else:  # it becomes a product with the weight, transposed in place, and a sum
            assert len(weight.uses()) == 1, weight.name
            weight.name += '.T'
            chosen.append(f'{node.name}_MatMul')
    check(chosen, '--precision', 'int8', 'fp32, as there are no linear layers')
    _keep_identities(model, linear)
    settings = dict(per_channel=True, weight_type=QuantType.QInt8)
    with TemporaryDirectory() as folder:
        path = Path(folder, 'model.onnx')
        proto = _proto_of(model)
        # The exporter has inferred all shapes; without this mark, onnxruntime warns.
        add_pre_process_metadata(proto)
        quantize_dynamic(proto, path, nodes_to_quantize=chosen, **settings)
        quantised = ir.load(path)
    quantised.metadata_props.clear()
    return quantised


def _proto_of(model: onnx_ir.Model) -> onnx.ModelProto:
    """Return a model in onnx's form, without types and shapes of weights.

    The quantiser transposes weights, and the converter to fp16 changes their types.
    """
    import onnx_ir as ir

    proto = ir.to_proto(model)
    given = proto.graph.value_info
    shapes = [v for v in given if v.name not in model.graph.initializers]
    del given[:]
    given.extend(shapes)
    return proto


def _to_fp16(model: onnx_ir.Model) -> onnx_ir.Model:
    """Compute in half precision, but for inputs, outputs and :data:`IN_FP32`."""
    import onnx_ir as ir
    from onnxruntime.transformers import float16

    kept, (value,) = [], model.graph.inputs  # the normalisation of images
    while len(uses := [*value.consumers()]) == 1 and uses[0].op_type in SCALINGS:
        (node,) = uses
        node.name = node.name or node.outputs[0].name
        kept.append(node.name)
        (value,) = node.outputs
    kinds = [*float16.DEFAULT_OP_BLOCK_LIST, *IN_FP32]
    settings = dict(keep_io_types=True, node_block_list=kept, op_block_list=kinds)
    proto = float16.convert_float_to_float16(_proto_of(model), **settings)
    # The converter adds the same cast for every use in fp32.
    nodes: dict[tuple, onnx.NodeProto] = {}
    for node in proto.graph.node:
        nodes.setdefault(tuple(node.output), deepcopy(node))
    proto.graph.ClearField('node')
    proto.graph.node.extend(nodes.values())
    half = ir.from_proto(proto)
    converted = False
    for value in list(half.graph.initializers.values()):
        if value.dtype == ir.DataType.FLOAT16:  # beside those in fp32 of a bundle
            name = value.name.removesuffix('.T')
            value.name = f'{name}.fp16{value.name.removeprefix(name)}'
            converted = True
    check(converted, '--precision', 'fp16', 'fp32, as no operator has weights for it')
    return half


def _fold_weights(model: onnx_ir.Model, places: tuple[str, ...]) -> None:
    """Give layers whose weight is a part of another weight one of their own.

    The attention of MiT, whose keys are not its queries, splits one weight.
    """
    import onnx_ir as ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    for node in [n for n in model.graph if n.op_type in ('MatMul', 'Gemm')]:
        part = node.inputs[1]
        if part.producer() is None or (found := _part_of_weight(part)) is None:
            continue
        whole, array = found
        if whole.startswith(places) and array.ndim == 2:
            name = f'{whole}.{part.name}'
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            value = model.graph.initializers.setdefault(name, value)
            node.replace_input_with(1, value)
    RemoveUnusedNodesPass()(model)


def _part_of_weight(value: onnx_ir.Value) -> tuple[str, np.ndarray] | None:
    """Return the name of the weight that a value is a part of, and the part."""
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    if value.const_value is not None:
        return value.name, value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type not in PARTS:
        return None
    given = [v for v in node.inputs if v is not None]
    found = [_part_of_weight(v) for v in given]
    if any(part is None for part in found):
        return None
    feeds = {v.name: array for v, (_, array) in zip(given, found, strict=True)}
    arrays = ReferenceEvaluator(ir.to_proto(node)).run(None, feeds)
    return found[0][0], arrays[value.index()]


def _keep_identities(model: onnx_ir.Model, nodes: Sequence[onnx_ir.Node]) -> None:
    """Compute ``x M`` as ``x + x (M - I)`` where M is nearer to the identity than to 0.

    Maps of gaps are: they read the residual stream, some of whose channels are far
    above the others. Rounded to int8 as a whole, it would lose the others.
    """
    import onnx_ir as ir

    for weight in dict.fromkeys(node.inputs[1] for node in nodes):
        uses, matrix = [*weight.uses()], weight.const_value.numpy()
        multiplies = all((n.op_type, i) == ('MatMul', 1) for n, i in uses)
        if not multiplies or len({*matrix.shape}) > 1:
            continue
        rest = matrix - np.eye(len(matrix), dtype=matrix.dtype)
        if np.linalg.norm(rest) >= np.linalg.norm(matrix):
            continue
        weight.const_value = ir.tensor(rest, name=weight.name)
        for node, _ in uses:
            (product,) = node.outputs
            total = ir.node('Add', [node.inputs[0], product], name=f'{node.name}_total')
            total.outputs[0].name = f'{product.name}_total'
            total.outputs[0].type = product.type
            total.outputs[0].shape = product.shape
            product.replace_all_uses_with(total.outputs[0])
            total.replace_input_with(1, product)
            model.graph.insert_after(node, total)


def _digest(array: np.ndarray) -> bytes:
    content = hashlib.sha256(f'{array.dtype.str} {array.shape} '.encode())
    content.update(np.ascontiguousarray(array).data)
    return content.digest()
