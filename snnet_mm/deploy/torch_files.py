"""Stitches as graphs of ``torch.export``."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from snnet_mm.utils import atomic_path

from .graph import Predictions, StitchBuild


def write_torch_export(build: StitchBuild, path: Path, precision: str) -> None:
    """Write a ``.pt2`` file."""
    with atomic_path(path) as temporary:
        torch.export.save(build.program, temporary)


def load_torch_export(path: Path, options: Mapping) -> Callable[[Tensor], Predictions]:
    """Open a ``.pt2`` file."""
    return torch.no_grad()(torch.export.load(path).module())
