"""The same picture as a page: hovering a point shows the stitch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from snnet_mm.stitching import StitchResult, StitchResults
from snnet_mm.utils import atomic_path

from .pareto_plot import (
    FRONT_COLOR,
    KIND_STYLES,
    OTHER_COLORS,
    Baseline,
    cost_axis,
    score_label,
)

TEMPLATE = Path(__file__).with_name('pareto_page.html')
COSTS = ('flops', 'latency', 'params', 'memory')


def write_pareto_page(
    results: StitchResults,
    path: str | os.PathLike,
    cost: str = 'flops',
    baselines: Sequence[Baseline] = (),
    others: Sequence[tuple[str, StitchResults]] = (),
    title: str | None = None,
) -> None:
    """Write a page that needs no other file and no network.

    Hovering a point shows id, kind, metrics, costs and the route drawn as blocks. All
    costs that the results hold can be chosen for the axis.

    Args:
        results: The evaluated stitches.
        path: The HTML file.
        cost: The cost that is shown first; baselines are drawn over it alone.
        baselines: Points to draw besides.
        others: Labels and results of other models, whose fronts are drawn.
        title: Heading.

    Raises:
        ValueError: If the results do not hold that cost.
    """
    from matplotlib.colors import to_hex  # see new_figure

    results.column(cost)
    costs = [c for c in COSTS if c == cost or _holds(results, c)]
    height, width = results.input_size
    data = dict(
        title=title or f'{len(results.stitches)} stitches at {height}x{width}',
        score=score_label(results),
        metric=results.metric,
        first=cost,
        axes={c: _axis(results, c) for c in costs},
        fronts={c: results.front(c) for c in costs},
        kinds={kind: to_hex(style['color']) for kind, style in KIND_STYLES.items()},
        frontColor=to_hex(FRONT_COLOR),
        otherColors=[to_hex(color) for color in OTHER_COLORS],
        stitches=[_point(results, r, costs) for r in results.stitches],
        anchors=_depths(results),
        baselines=[b._asdict() for b in baselines],
        others=[
            dict(label=label, lines={c: _line(o, c) for c in costs if _holds(o, c)})
            for label, o in others
        ],
    )
    # A closing tag in a text must not end the script.
    text = json.dumps(data).replace('<', '\\u003c')
    with atomic_path(path) as temporary:
        page = TEMPLATE.read_text(encoding='utf-8').replace('/*DATA*/null', text)
        temporary.write_text(page, encoding='utf-8')


def _axis(results: StitchResults, cost: str) -> dict:
    label, unit = cost_axis(results, cost)
    return dict(label=label, unit=unit)


def _point(results: StitchResults, r: StitchResult, costs: Sequence[str]) -> dict:
    return dict(
        id=r.id,
        kind=r.kind,
        route=r.route,
        segments=_segments(r.route),
        score=results.score(r),
        metrics=dict(r.metrics),
        costs={c: getattr(r, c) for c in costs},
    )


def _segments(route: str) -> list[tuple[str, int, int]]:
    """Anchor, first and last block but one of every segment of a described route."""
    found = re.findall(r'(\w+)\[(\d+):(\d+)\]', route)
    return [(anchor, int(begin), int(end)) for anchor, begin, end in found]


def _depths(results: StitchResults) -> dict[str, int]:
    """Depth of every anchor, fast -> slow, as far as the routes show it."""
    depths: dict[str, int] = {}
    for r in results.stitches:
        for anchor, _, end in _segments(r.route):
            depths[anchor] = max(end, depths.get(anchor, 0))
    # 'fast' and 'slow', or 'anchor0', 'anchor1', ...: their names have that order too.
    return dict(sorted(depths.items()))


def _line(results: StitchResults, cost: str) -> list[tuple[float, float]]:
    column, scores = results.column(cost), results.scores()
    return [(column[i], scores[i]) for i in results.front(cost)]


def _holds(results: StitchResults, cost: str) -> bool:
    return all(getattr(r, cost) is not None for r in results.stitches)
