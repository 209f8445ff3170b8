"""Heads of detectors as ONNX files of their own, which all stitches share."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from snnet_mm.runtime.bundle import OPENERS, describe_file
from snnet_mm.tasks import Task, task_of
from snnet_mm.tasks.base import as_tuple

from .comparison import check_parity, predict_loaded
from .description import output_names
from .onnx_files import OnnxBundle, convert, save_onnx

FORMAT = 'onnx'  # OpenVINO pools boxes otherwise than mmcv
BOXES = 'rois'  # input after the maps


class HeadFile(NamedTuple):
    """A graph of maps, and some of boxes ``(n, 4)``, with inputs to compare it on."""

    name: str
    graph: nn.Module
    examples: tuple[Tensor, ...]
    step: dict


def write_heads(
    model: nn.Module, images: Tensor, folder: Path, bundle: OnnxBundle | None
) -> list[HeadFile]:
    """Write what follows the maps of a detector; of other models there is nothing.

    Heads are in float32 whatever the stitches are in.
    """
    files, task = [], task_of(model)
    if type(task).head_graphs is Task.head_graphs:
        return files
    maps = as_tuple(predict_loaded(model, images[:1]))
    graphs = task.head_graphs(model, maps)
    for part, graph, outputs, examples, step in graphs:
        name = '{}_{}x{}.onnx'.format(part, *images.shape[2:])
        graph = deepcopy(graph).eval().requires_grad_(False)
        some = {0: torch.export.Dim('boxes', max=2**20)}
        sizes = [None if example.ndim > 2 else some for example in examples]
        dynamic = dict(dynamic_shapes=(tuple(sizes),), strict=False)
        program = torch.export.export(graph, examples, **dynamic)
        inputs = [*output_names(model, len(maps)), BOXES][: len(examples)]
        onnx = convert(program, examples, inputs, outputs)
        if bundle is None:
            save_onnx(onnx, folder / name)
        else:
            bundle.add(name, onnx)
        step = dict(step=part, graph=name, **step)
        files.append(HeadFile(name, graph, examples, step))
    return files


def compare_head(file: HeadFile, folder: Path, shared: Mapping | None) -> dict:
    """Open a file again; return what the manifest says of it."""
    path = folder / file.name
    run = OPENERS[FORMAT](path, torch.get_num_threads(), {})
    got = tuple(map(torch.from_numpy, run(*(e.numpy() for e in file.examples))))
    wanted = as_tuple(file.graph(*file.examples))
    difference = check_parity(FORMAT, file.name, got, wanted)
    return describe_file(path) | dict(weights=shared, max_difference=difference)
