"""A bar chart of how often classes occur."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .figures import new_figure, save_figure


def plot_class_frequencies(
    by_split: Mapping[str, Mapping[str, int]], unit: str, path: str | os.PathLike
) -> None:
    """Draw the share of every class in each split, most frequent first.

    Args:
        by_split: Counts by class, for each split.
        unit: What is counted.
        path: The picture.
    """
    shares = {
        split: {
            name: 100 * n / max(sum(counts.values()), 1) for name, n in counts.items()
        }
        for split, counts in by_split.items()
    }
    first = next(iter(shares.values()))
    names = list(first)
    if not all(name.endswith(' m') for name in names):  # bins of depth have an order
        names.sort(key=lambda name: -first[name])
    height = 0.8 / len(shares)
    rows = max(len(names) * 0.12 * (1 + len(shares)), 2)
    figure = new_figure(7, 1 + rows)
    axes = figure.add_subplot()
    for i, (split, values) in enumerate(shares.items()):
        places = [j + height * (i - (len(shares) - 1) / 2) for j in range(len(names))]
        widths = [values.get(name, 0) for name in names]
        axes.barh(places, widths, height, label=split)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(f'% of all {unit}')
    axes.grid(axis='x', alpha=0.3)
    axes.spines[['top', 'right']].set_visible(False)
    if len(shares) > 1:
        axes.legend(frameon=False, loc='lower right')
    save_figure(figure, path, dpi=150)
