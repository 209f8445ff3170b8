"""Milliseconds of all stitches in other runtimes, interpolated from a few files."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from snnet_mm.costs import LatencyCheck
from snnet_mm.runtime import fit_times
from snnet_mm.stitching import CostTable

from .exporter import StitchExporter
from .formats import load_export, runtime_setup

WARM_UP = 2  # rounds that do not count


def measure_exported(
    exporter: StitchExporter,
    stitches: Collection[int],
    precisions: Sequence[str],
    runtime: str = 'onnx',
    rounds: int = 20,
) -> dict[str, tuple[CostTable, list[LatencyCheck]]]:
    """Time a few stitches as files, in turn; return costs and checks by precision.

    Exporting takes its time: all others are read from a line through the FLOPs of
    these; see :func:`fit_times`. The checks say how far that is off.
    """
    with TemporaryDirectory() as folder:
        exporter.out_dir = Path(folder)
        manifest = exporter.export_bundle([*stitches], [runtime], precisions)
        runs = {
            (file['precision'], stitch['id']): load_export(Path(folder, file['name']))
            for stitch in manifest['stitches']
            for file in stitch['files']
        }
        times, image = {key: [] for key in runs}, exporter.graph_images[:1]
        for _ in range(rounds + WARM_UP):
            for key, run in runs.items():
                start = time.perf_counter()
                run(image)
                times[key].append(1e3 * (time.perf_counter() - start))
    flops, found = exporter.costs.column('flops'), {}
    for precision in precisions:
        rows = {i: times[precision, i][WARM_UP:] for i in stitches}
        fitted = fit_times(flops, {i: median(row) for i, row in rows.items()})
        table = exporter.costs.measured(runtime_setup(runtime, precision), fitted)
        checks = [LatencyCheck.of(i, fitted[i], row) for i, row in rows.items()]
        found[precision] = table, checks
    return found
