"""Per-stitch figures that the authors published, as results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from snnet_mm.utils.json_file import read_json

from .results import StitchResult, StitchResults
from .space import StitchingSpace


def read_published(
    path: str | os.PathLike,
    space: StitchingSpace,
    input_size: tuple[int, int],
    metric: str = 'mIoU',
    higher_is_better: bool = True,
) -> StitchResults:
    """Results from a JSON file that maps the authors' stitch ids to their figures.

    Args:
        path: A file with ``stitches``: FLOPs and metrics by stitch id.
        space: The stitching space that the ids number.
        input_size: Height and width in pixels that the FLOPs hold for.
        metric: The metric that ranks the stitches.
        higher_is_better: Whether more of it is better.

    Raises:
        ValueError: If there is no such file, it is damaged or something else, or it
            holds ids outside the space.
    """
    parse = partial(
        _results,
        space=space,
        input_size=input_size,
        metric=metric,
        higher_is_better=higher_is_better,
    )
    return read_json(
        path, parse, 'file of published figures', "the authors' evaluation"
    )


def _results(
    data: Mapping,
    space: StitchingSpace,
    input_size: tuple[int, int],
    metric: str,
    higher_is_better: bool,
) -> StitchResults:
    if not isinstance(data['stitches'], Mapping):
        raise ValueError(
            'it holds no stitches by id; results of tools/test.py are read without '
            '--depths (plot_pareto.py) or --published (check_prior.py)'
        )
    stitches = []
    for key, figures in data['stitches'].items():
        stitch = space[int(key)]
        metrics = {name: v for name, v in figures.items() if name != 'flops'}
        if metric not in metrics:
            raise ValueError(f'stitch {key} has no {metric!r} but {sorted(metrics)}')
        flops, route = int(figures['flops']), space.describe(stitch)
        stitches.append(
            StitchResult(stitch.id, stitch.kind, route, flops, None, metrics)
        )
    return StitchResults(
        stitches, metric, higher_is_better, tuple(input_size), space.fingerprint
    )
