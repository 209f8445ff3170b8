"""The picture of an evaluation as a page: hovering a point shows the stitch."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from snnet_mm.stitching import UNITS, StitchResults
from snnet_mm.utils import atomic_path

from .pareto_plot import KIND_STYLES, Baseline, cost_axis, draw_pareto, ids_by_kind

TEMPLATE = Path(__file__).with_name('pareto_page.html')


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
    costs that the results hold can be chosen for the axis; baselines are drawn over
    ``cost`` alone, which is shown first.

    Args:
        results: See :func:`plot_pareto`.
        path: The HTML file.
        cost: See :func:`plot_pareto`.
        baselines: See :func:`plot_pareto`.
        others: See :func:`plot_pareto`.
        title: Heading.
    """
    from matplotlib.colors import to_hex  # see new_figure

    results.column(cost)
    costs = [cost, *(c for c in UNITS if c != cost and _holds(results, c))]
    plots = {}
    for c in costs:
        drawn = [(label, other) for label, other in others if _holds(other, c)]
        plots[c] = _svg(results, c, baselines if c == cost else (), drawn)
    height, width = results.input_size
    axes = {c: cost_axis(results, c) for c in costs}
    data = dict(
        title=title or f'{len(results.stitches)} stitches at {height}x{width}',
        metric=results.metric,
        axes={c: dict(label=label, unit=unit) for c, (label, unit) in axes.items()},
        fronts={c: results.front(c) for c in costs},
        plots=plots,
        kinds=ids_by_kind(results),
        colors={kind: to_hex(style['color']) for kind, style in KIND_STYLES.items()},
        stitches={
            r.id: vars(r) | dict(segments=_segments(r.route)) for r in results.stitches
        },
        anchors=_depths(results),
    )
    # A closing tag in a text must not end the script.
    text = json.dumps(data).replace('<', '\\u003c')
    with atomic_path(path) as temporary:
        page = TEMPLATE.read_text(encoding='utf-8').replace('/*DATA*/null', text)
        temporary.write_text(page, encoding='utf-8')


def _svg(*args) -> str:
    """Draw as an element of a page, with text as text."""
    from matplotlib import rc_context  # see new_figure

    file = StringIO()
    none = dict.fromkeys(('Creator', 'Date', 'Format', 'Type'))
    with rc_context({'svg.fonttype': 'none'}):
        draw_pareto(*args).savefig(file, format='svg', metadata=none)
    text = file.getvalue()
    return text[text.index('<svg') :]


def _segments(route: str) -> list[tuple[str, int, int]]:
    """Read anchor, begin and end of every segment of a described route."""
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


def _holds(results: StitchResults, cost: str) -> bool:
    return all(getattr(r, cost) is not None for r in results.stitches)
