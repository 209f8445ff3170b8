"""A model as a graph that maps loaded images to predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from mmengine.config import Config
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor

from snnet_mm.models import ChainAnchor, SingleStitch
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils.replacing import replaced

from .description import INPUT
from .mm_internals import make_traceable
from .normalization import normalization

if TYPE_CHECKING:
    import onnx_ir


class PredictionGraph(nn.Module):
    """Normalises images and predicts them with a copy of an exported model."""

    def __init__(
        self, model: nn.Module, size: tuple[int, int], normalization: Mapping
    ) -> None:
        super().__init__()
        self.task, self.model = task_of(model), deepcopy(model)
        self.model.eval()
        kinds = SingleStitch | ChainAnchor  # the latter also in the former
        found = (m for m in self.model.modules() if isinstance(m, kinds))
        if (backbone := next(found, None)) is not None:
            backbone.fix_input_size(size)
        make_traceable(self.model)
        self.model.data_preprocessor = None
        for name, default in (('mean', 0.0), ('std', 1.0)):
            values = normalization.get(name) or [default]
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Predictions:
        return self.task.predict(self.model, (images - self.mean) / self.std, 1)


def trace(build: StitchBuild) -> torch.export.ExportedProgram:
    """Trace a stitch at the size of its images; one image fixes the batch size to 1."""
    images = build.images
    values = normalization(build.cfg)._asdict()
    graph = PredictionGraph(build.model, images.shape[2:], values)
    # Without a bound, torch 2.6 rejects its own limit of 2 ** 63 - 1 images.
    shapes = {INPUT: {0: torch.export.Dim('batch', max=2**31 - 1)}}
    shapes = shapes if len(images) > 1 else None
    # With gradients enabled, a relative position bias is traced as a table and its
    # lookup. The cached bias would be stored once per block, many times as large. The
    # first run fills other caches, which tracing takes as constants. No weight may need
    # a gradient: attention would be decomposed into another layout.
    graph.requires_grad_(False)
    with torch.enable_grad(), _constant_shapes():
        graph(images)
        program = torch.export.export(
            graph, (images,), dynamic_shapes=shapes, strict=False
        )
    for node in [*program.graph.nodes]:
        # Exported files must contain neither lines of code nor images.
        node.meta.pop('stack_trace', None)
        # torch 2.12 cannot export a no-op of this kind on a buffer, as in GFL's head.
        if node.target is torch.ops.aten.type_as.default:
            of, to = (part.meta['val'].dtype for part in (node.args[0], node))
            if of == to:
                node.replace_all_uses_with(node.args[0])
                program.graph.erase_node(node)
    program.graph_module.recompile()
    program.example_inputs = ((images.new_zeros(()).expand(images.shape),), {})
    return program


@contextmanager
def _constant_shapes() -> Iterator[None]:
    """Trace tensors of map sizes as constants.

    mmdet's transformers read the sizes of maps from tensors. As of torch 2.12, tracing
    keeps the values of tensors with one element only. The limit is a constant of two
    torch modules; tests/test_exports/test_exported_detectors.py fails if they change.
    """
    with ExitStack() as stack:
        for module in (fake_tensor, proxy_tensor):
            limit = dict(CONSTANT_NUMEL_LIMIT=1024)
            stack.enter_context(replaced(vars(module), limit))
        # The batch size, which may vary, is 0.
        shape = lambda x: torch.tensor([0, *x.shape[1:]])  # noqa: E731
        stack.enter_context(replaced(vars(torch), dict(_shape_as_tensor=shape)))
        yield


@dataclass
class StitchBuild:
    """A stitch as a standalone model, with images as its graph takes them."""

    cfg: Config
    model: nn.Module
    images: Tensor
    onnx: onnx_ir.Model | None = None  # once converted
