"""``manifest.json``, which describes an export."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from snnet_mm.utils import atomic_path


@dataclass(frozen=True)
class ExportedFile:
    """A file of a stitch, with the largest difference of its predictions."""

    format: str
    name: str
    bytes: int
    max_difference: float


@dataclass(frozen=True)
class ExportedStitch:
    """A stitch in an export; see :class:`Stitch` and :class:`Cost`."""

    id: int
    kind: str
    route: str
    flops: int
    params: int
    files: Sequence[ExportedFile]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The contents of an export, and how its graphs are fed.

    Args:
        input: Name, type, shape, order of channels and range of a graph's images, and
            the mean and deviation by which the graph itself normalises them.
        outputs: Name, type and shape of everything that a graph predicts.
        classes: Names of the classes, as far as the checkpoint tells them.
        compared_on: The images that predictions were compared on.
        space: Fingerprint of the stitching space that the ids are of.
        weights: Name and bytes of the file of weights that the graphs share.
    """

    input: Mapping
    outputs: Sequence[Mapping]
    classes: Sequence[str]
    compared_on: str
    space: str
    stitches: Sequence[ExportedStitch]
    weights: Mapping | None = None

    def write(self, folder: Path) -> None:
        """Write ``manifest.json``."""
        with atomic_path(folder / 'manifest.json') as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1))
