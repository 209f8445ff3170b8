"""How much faster this CPU multiplies matrices in a smaller precision, measured."""

import time
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

TOKENS, WIDTH, HIDDEN = 256, 384, 1536  # the first layer of an MLP of ViT-S
ROUNDS = 50
Products = tuple[Callable[[], object], Callable[[], object]]  # in fp32, and smaller


def measured_gain(precision: str) -> float | None:
    """Return how many times as fast as in fp32 a matrix product is on this CPU.

    bf16 is measured in torch, int8 in onnxruntime with dynamic scales, as in exports;
    None of other precisions, or without onnx and onnxruntime.
    """
    products = PRODUCTS.get(precision, lambda: None)()
    if products is None:
        return None
    times = ([], [])
    for _ in range(ROUNDS):  # in turn: the machine may be busy
        for run, found in zip(products, times, strict=True):
            start = time.perf_counter()
            run()
            found.append(time.perf_counter() - start)
    full, small = map(min, times)
    return full / small


def print_gains(precisions: Collection[str]) -> None:
    """Print what smaller precisions gain on this CPU, where it can be measured."""
    for precision in precisions:
        if gain := measured_gain(precision):
            words = 'the whole gains less' if gain > 1.1 else 'expect no gain'
            print(
                f'Measured on this CPU: matrix products in {precision} are '
                f'{gain:.2g} x as fast as in fp32; {words}'
            )


@torch.no_grad()
def _torch_products() -> Products:
    a, b = torch.rand(TOKENS, WIDTH), torch.rand(WIDTH, HIDDEN)
    small = a.bfloat16(), b.bfloat16()
    return lambda: a @ b, lambda: small[0] @ small[1]


def _onnx_products() -> Products | None:
    if not (find_spec('onnx') and find_spec('onnxruntime')):
        return None
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    one, shapes = onnx.TensorProto.FLOAT, ((TOKENS, WIDTH), (TOKENS, HIDDEN))
    ends = [
        onnx.helper.make_tensor_value_info(name, one, shape)
        for name, shape in zip('xy', shapes, strict=True)
    ]
    weight = onnx.numpy_helper.from_array(torch.rand(WIDTH, HIDDEN).numpy(), 'w')
    node = onnx.helper.make_node('MatMul', ['x', 'w'], ['y'], 'product')
    graph = onnx.helper.make_graph([node], 'graph', ends[:1], ends[1:], [weight])
    versions = dict(opset_imports=[onnx.helper.make_opsetid('', 18)], ir_version=10)
    model = onnx.helper.make_model(graph, **versions)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    inputs, runs = dict(x=torch.rand(TOKENS, WIDTH).numpy()), []
    with TemporaryDirectory() as folder:
        path = Path(folder, 'int8.onnx')
        add_pre_process_metadata(model)  # there are no shapes to infer
        quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8)
        for content in (model.SerializeToString(), path.read_bytes()):
            session = onnxruntime.InferenceSession(
                content, settings, providers=['CPUExecutionProvider']
            )
            runs.append(lambda session=session: session.run(None, inputs))
    return tuple(runs)


PRODUCTS = dict(int8=_onnx_products, bf16=_torch_products)
