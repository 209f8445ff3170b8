"""Peak memory of every stitch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from rich.progress import track
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snnet_mm.models import set_stitch

from .costs import cost_table, on_meta
from .device import device_of, empty_images
from .parts import as_shipped, run_model, unwrapped


def measure_memory(
    model: nn.Module,
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
    progress: bool = False,
) -> dict[int, int]:
    """Bytes at the peak of one forward of every stitch, by stitch id.

    That is the stitch's own weights, as if it were shipped alone, the images, and the
    most that activations take at once. On a GPU activations are what torch's allocator
    handed out, cuDNN's and cuBLAS's workspaces included. Elsewhere they are counted
    without computing anything: the results of all operations that are alive at once.
    What a kernel needs inside is not seen there, and attention is taken to be fused,
    that is, to store no attention matrix.

    Args:
        model: A stitched backbone, or an mm model that holds one.
        input_size: Height and width in pixels; by default the fixed size of the
            model's data preprocessor.
        batch: Images in a batch.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If the model holds no stitched backbone, or no size is known.
    """
    model = unwrapped(model)
    weight = next(model.parameters())
    params = cost_table(model, input_size).column('params')
    images = empty_images(model, input_size, batch)
    ids = track(params, 'Memory', disable=not progress, transient=True)
    with as_shipped(model):
        if device_of(model).type == 'cuda':
            peaks = {i: _peak_on_gpu(model, images, i) for i in ids}
        else:
            counter = _PeakCounter(model)
            metas = on_meta(counter)
            peaks = functional_call(
                counter, metas, (images.to('meta'), ids), tie_weights=False
            )
    return {i: params[i] * weight.element_size() + peaks[i] for i in params}


def _peak_on_gpu(model: nn.Module, images: Tensor, stitch_id: int) -> int:
    """Bytes of images and activations at the peak of a real forward."""
    set_stitch(model, stitch_id)
    torch.cuda.reset_peak_memory_stats(images.device)
    before = torch.cuda.memory_allocated(images.device)
    run_model(model, images)
    peak = torch.cuda.max_memory_allocated(images.device) - before
    return peak + images.untyped_storage().nbytes()


class _PeakCounter(nn.Module):
    """Counts the peaks of stitches; to be run with meta tensors in their place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, ids) -> dict[int, int]:
        """Bytes of images and activations at the peak of every stitch."""
        peaks = {}
        for stitch_id in ids:
            set_stitch(self.model, stitch_id)
            peaks[stitch_id] = images.untyped_storage().nbytes() + count_peak(
                partial(run_model, self.model, images)
            )
        return peaks


def count_peak(run: Callable[[], object]) -> int:
    """Bytes that the results of operations take at most, while a call runs."""
    with _FusedAttention(), _LiveTensors() as live:
        run()
    return live.peak


class _LiveTensors(TorchDispatchMode):
    """Adds up the memory of all results that are still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = {_storage_id(x) for x in tree_leaves((args, kwargs)) if _is_tensor(x)}
        results = func(*args, **kwargs)
        for result in filter(_is_tensor, tree_leaves(results)):
            if _storage_id(result) not in given | self._seen:
                self._count(result.untyped_storage())
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        size, key = storage.nbytes(), storage._cdata
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        self._seen.add(key)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.bytes -= size
        self._seen.discard(key)


class _FusedAttention(TorchFunctionMode):
    """Attention on meta tensors stores no more than real kernels do."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _attend(*args, **kwargs)
        return func(*args, **kwargs)


def _attend(query, key, value, attn_mask=None, *args, **kwargs) -> Tensor:
    return _Attention.apply(query, key, value, attn_mask)


class _Attention(torch.autograd.Function):
    """Keeps its arguments and result for the backward pass, no attention matrix."""

    @staticmethod
    def forward(ctx, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None):
        """An empty result, heads next to each other for every token, as kernels do."""
        rows = query.transpose(-3, -2).shape[:-1]
        result = query.new_empty(*rows, value.shape[-1]).transpose(-3, -2)
        ctx.save_for_backward(query, key, value, bias, result)
        return result

    @staticmethod
    def backward(ctx, gradient: Tensor):
        """Empty gradients of the arguments that want one."""
        return tuple(
            torch.empty_like(x) if wanted else None
            for x, wanted in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        )


def _is_tensor(thing: object) -> bool:
    return isinstance(thing, Tensor)


def _storage_id(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
