"""The table of stitches: their costs and, once evaluated, their metrics."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from snnet_mm.runtime.budgets import UNITS, drop_nan, pareto_front
from snnet_mm.utils import check, read_json, require, write_json

from .metrics import HIGHER, NONE, key_metric, metric_directions
from .space import StitchingSpace

# Values of rows that a file holds once if all rows share them.
SHARED = 'input_size', 'setup', 'num_images'


class Cost(NamedTuple):
    """FLOPs and parameters of one stitch; see :class:`StitchRow`."""

    flops: int
    params: int | None


class Key(NamedTuple):
    """A stitch at an input size (height, width) in a precision."""

    id: int
    input_size: tuple[int, int]
    precision: str


@dataclass(frozen=True)
class Setup:
    """Device name, batch size and data type of measured latency and memory."""

    device: str
    batch: int
    dtype: str

    def __str__(self) -> str:
        return f'{self.device}, batch {self.batch}, {self.dtype}'


@dataclass(frozen=True)
class StitchRow:
    """Costs and metrics of one stitch; see :class:`Stitch`.

    ``flops`` are multiply-accumulates per image, as in the papers. ``params`` counts
    the parameters that the stitch uses, with low-rank updates merged. ``latency``
    (milliseconds) and ``memory`` (peak bytes) refer to one forward of a batch in the
    ``setup`` and are None if not measured. ``input_size`` is the height and width in
    pixels for which costs and metrics hold, ``num_images`` the number of images
    evaluated, if known. ``metrics`` are empty before an evaluation.
    """

    id: int
    kind: str
    route: str
    flops: int
    params: int | None
    input_size: tuple[int, int]
    metrics: Mapping[str, float] = field(default_factory=dict)
    latency: float | None = None
    memory: int | None = None
    setup: Setup | None = None
    num_images: int | None = None

    @property
    def key(self) -> Key:
        """Identity of the row in a table."""
        return Key(self.id, self.input_size, self.precision)

    @property
    def precision(self) -> str:
        """Data type of the setup, ``'fp32'`` if nothing was measured."""
        return self.setup.dtype if self.setup else 'fp32'

    def joined(self, other: StitchRow) -> StitchRow:
        """Return this row joined with another row of the same stitch."""
        params = {self.params, other.params} - {None}
        expected = f'tables of one model, as parameters of stitch {self.id} differ'
        check(len(params) < 2, '--results', sorted(params), expected)
        names = ['metrics', 'num_images'] if other.metrics else []
        names += ['latency', 'memory', 'setup'] if other.setup else []
        return replace(self, **{name: getattr(other, name) for name in names})

    @classmethod
    def read(cls, data: Mapping) -> StitchRow:
        """Return a row from JSON data; null is an undefined metric."""
        metrics, setup = data.get('metrics') or {}, data.get('setup')
        read: dict[str, Any] = dict(
            input_size=tuple(data['input_size']),
            metrics={n: math.nan if v is None else v for n, v in metrics.items()},
            setup=setup and Setup(**setup),
        )
        # Published figures lack parameters.
        return cls(**dict(params=None) | dict(data) | read)


@dataclass(frozen=True)
class StitchTable:
    """Costs and metrics of stitches of one model, one row per :class:`Key`.

    A table of one input size and precision is also a mapping of stitch ids to rows.

    Args:
        rows: The rows.
        space: Fingerprint of the stitching space; None if unknown.
        scope: Parts of the model that costs cover, such as
            ``'backbone and neck alone'``; None for everything that prediction runs.
        metric: The metric that ranks the stitches; None before an evaluation.
        directions: Whether ``'higher'`` or ``'lower'`` is better, by metric. A metric
            without a direction cannot rank stitches.
        data_size: Number of images in the whole data set, if fewer were evaluated.
        digest: Digest of the test that the metrics belong to, if known.

    Examples:
        >>> [row.id for row in StitchTable.read('stitches.json').front('latency')]
    """

    rows: Sequence[StitchRow]
    space: str | None = None
    scope: str | None = None
    metric: str | None = None
    directions: Mapping[str, str] = field(default_factory=dict, repr=False)
    data_size: int | None = None
    digest: str | None = None

    @classmethod
    def counted(
        cls,
        costs: Mapping[int, Cost],
        input_size: tuple[int, int],
        space: StitchingSpace,
        scope: str | None = None,
    ) -> StitchTable:
        """Return a table of the costs of stitches of a space, by stitch id."""
        rows = []
        for i, cost in costs.items():
            stitch = space[i]
            about = i, stitch.kind, space.describe(stitch), *cost
            height, width = input_size
            rows.append(StitchRow(*about, (height, width)))
        return cls(rows, space.fingerprint, scope)

    @classmethod
    def merge(cls, *tables: StitchTable) -> StitchTable:
        """Join tables of one model, of any sizes and precisions.

        Rows of the same stitch, size and precision are joined: costs are those of the
        first table, metrics and measurements those of the last table that has them.
        """
        spaces = {table.space for table in tables} - {None}
        check(len(spaces) < 2, '--results', sorted(spaces), 'one stitching space')
        scopes = {table.scope or 'the whole model' for table in tables}
        check(len(scopes) == 1, '--results', sorted(scopes), 'costs of the same parts')
        ranked = [table for table in tables if table.metric is not None]
        by = {(t.metric, t.directions.get(t.metric), t.data_size) for t in ranked}
        expected = 'tables ranked by one metric, on the same images'
        check(len(by) < 2, '--results', by, expected)
        rows: dict[Key, StitchRow] = {}
        for row in (row for table in tables for row in table.rows):
            rows[row.key] = rows[row.key].joined(row) if row.key in rows else row
        first = (ranked or tables)[0]
        space = next(iter(spaces), None)
        return replace(first, rows=[*rows.values()], space=space)

    def __getitem__(self, stitch_id: int) -> StitchRow:
        return self._by_id[stitch_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _by_id(self) -> dict[int, StitchRow]:
        return {row.id: row for row in self.rows}

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width in pixels, of several sizes the largest."""
        return max((row.input_size for row in self.rows), key=math.prod)

    def at(self, input_size: tuple[int, int]) -> StitchTable:
        """Return the rows of one input size."""
        return replace(self, rows=[r for r in self.rows if r.input_size == input_size])

    def for_size(self, input_size: tuple[int, int]) -> StitchTable:
        """Return the rows of one input size; all rows if there are none of it."""
        of_size = self.at(input_size)
        return of_size if of_size.rows else self

    def shared(self, name: str) -> Any:
        """Return a value that all rows share; None if they differ."""
        found = {getattr(row, name) for row in self.rows}
        return found.pop() if len(found) == 1 else None

    def measured(
        self,
        setup: Setup,
        latency: Mapping[int, float] | None = None,
        memory: Mapping[int, int] | None = None,
    ) -> StitchTable:
        """Return the table with latency and memory measured in a setup, by id."""
        latency, memory = latency or {}, memory or {}
        rows = [
            replace(r, latency=latency.get(r.id), memory=memory.get(r.id), setup=setup)
            for r in self.rows
        ]
        return replace(self, rows=rows)

    def with_metrics(
        self,
        metrics: Mapping[int, Mapping[str, float]],
        num_images: int | None = None,
        lower_is_better: Collection[str] | None = None,
    ) -> StitchTable:
        """Return the rows of some stitches with metrics, by stitch id and name.

        For ``lower_is_better`` see :func:`metric_directions`.
        """
        names = list(dict.fromkeys(n for found in metrics.values() for n in found))
        rows = []
        for i, found in metrics.items():
            expected = (
                f"{names} for stitch {i}, too; mmdet's CocoMetric returns none if "
            )
            expected += "nothing was detected; type='StitchCocoMetric' returns them"
            check(len(found) == len(names), 'test_evaluator', [*found], expected)
            # Metrics may be numpy scalars, which JSON cannot serialise.
            values = {name: float(value) for name, value in found.items()}
            rows.append(replace(self[i], metrics=values, num_images=num_images))
        directions = metric_directions(names, lower_is_better)
        metric = key_metric(names)
        return replace(self, rows=rows, metric=metric, directions=directions)

    def ranked_by(
        self, metric: str | None = None, lower_is_better: Collection[str] | None = None
    ) -> StitchTable:
        """Return this table ranked by another metric; see :meth:`with_metrics`."""
        if self.metric is None:
            return self
        metric = metric or self.metric
        names = next([*row.metrics] for row in self.rows if row.metrics)
        check(metric in names, '--metric', metric, names)
        directions = metric_directions(names, lower_is_better, self.directions)
        return replace(self, metric=metric, directions=directions)

    @property
    def higher_is_better(self) -> bool:
        """Direction of the ranking metric; raises if it is unknown."""
        expected = (
            f'{self.metric}, or {NONE} if higher is better: its direction is unknown'
        )
        check(self.metric in self.directions, '--lower-is-better', None, expected)
        return self.directions[self.metric] == HIGHER

    def score(self, row: StitchRow) -> float:
        """Return the ranking metric of a row."""
        return row.metrics[self.metric]

    def ranked(self) -> list[StitchRow]:
        """Return the evaluated rows whose ranking metric is not NaN."""
        found = {row.key: self.score(row) for row in self.rows if row.metrics}
        known = drop_nan(found, self.metric)
        return [row for row in self.rows if row.key in known]

    def scores(self) -> dict[int, float]:
        """Return the ranking metric by stitch id, without NaN."""
        return {row.id: self.score(row) for row in self.ranked()}

    def column(self, name: str) -> dict[int, float]:
        """Return one cost by stitch id."""
        return {key.id: cost for key, cost in cost_column(self.rows, name).items()}

    def front(self, cost: str = 'flops') -> list[StitchRow]:
        """Return the rows on the Pareto front of the ranking metric over a cost."""
        expected = 'a stitches.json of tools/test.py, which has metrics'
        check(self.metric is not None, '--results', None, expected)
        rows = {row.key: row for row in self.ranked()}
        scores = {key: self.score(row) for key, row in rows.items()}
        costs = cost_column(rows.values(), cost)
        return [rows[key] for key in pareto_front(costs, scores, self.higher_is_better)]

    def check_space(self, space: StitchingSpace, name: str = 'the table') -> None:
        """Raise if the table's stitching space is known and differs."""
        if self.space not in (None, space.fingerprint):
            raise ValueError(
                f'{name} is of another stitching space than the model, which has '
                f'depths {space.depths} and {len(space)} stitches (config keys: '
                'backbone.anchors, backbone.kinds, backbone.stitch_ids)'
            )

    def to_dict(self) -> dict:
        """Return JSON data for :meth:`from_dict`; non-finite metrics become None."""
        data = {k: v for k, v in asdict(self).items() if v not in (None, {})}
        shared = [name for name in SHARED if self.shared(name) is not None]
        data |= {name: data['rows'][0][name] for name in shared}
        data['stitches'] = rows = []
        for row in data.pop('rows'):
            found = row['metrics'].items()
            row['metrics'] = {n: v if math.isfinite(v) else None for n, v in found}
            kept = (name for name in row if name not in shared)
            rows.append({k: row[k] for k in kept if row[k] not in (None, {})})
        return data

    @classmethod
    def from_dict(cls, data: Mapping) -> StitchTable:
        """Return a table from the output of :meth:`to_dict`."""
        shared = {name: data[name] for name in SHARED if name in data}
        rows = [StitchRow.read(shared | row) for row in data['stitches']]
        once = 0 < len({row.key for row in rows}) == len(rows)
        require(once, 'ids of stitches', [row.id for row in rows], 'different ids')
        scored = [row for row in rows if row.metrics]
        names, metric = {n for row in scored for n in row.metrics}, data.get('metric')
        right = metric in (names or {None})
        require(right, 'metric', metric, f'one of {sorted(names)}')
        same = all(row.metrics.keys() == names for row in scored)
        require(same, 'metrics', sorted(names), 'the same for all stitches')
        directions = data.get('directions', metric_directions(names))
        about = {n: data.get(n) for n in ('space', 'scope', 'data_size', 'digest')}
        return cls(rows, metric=metric, directions=directions, **about)

    def save(self, path: str | os.PathLike, **more: Any) -> None:
        """Write a JSON file atomically, with ``more`` entries for human readers."""
        write_json(path, self.to_dict() | more)

    @classmethod
    def read(
        cls, path: str | os.PathLike, space: StitchingSpace | None = None
    ) -> StitchTable:
        """Read a file written by :meth:`save`, and check its space if given."""
        made_by = 'tools/test.py or tools/analysis_tools/stitch_table.py'
        table = read_json(path, cls.from_dict, 'table of stitches', made_by)
        if space is not None:
            table.check_space(space, str(path))
        return table


def cost_column(rows: Iterable[StitchRow], name: str) -> dict[Key, float]:
    """Return one cost of rows by key."""
    check(name in UNITS, 'cost', name, UNITS)
    column = {row.key: getattr(row, name) for row in rows}
    expected = (
        f'a costs.json with the {name} of these stitches, which was not measured; '
        f'tools/analysis_tools/stitch_table.py CONFIG --{name} writes it'
    )
    check(None not in column.values(), '--results', None, expected)
    return column
