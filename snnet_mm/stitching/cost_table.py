"""The cost table of all stitches, and groups of stitches by cost."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from snnet_mm.runtime.budgets import UNITS
from snnet_mm.utils import check, is_number, is_whole, read_json, require, write_json

from .space import StitchingSpace

OTHER_SPACE = 'is of another stitching space than the model'


class Cost(NamedTuple):
    """Cost of one stitch.

    ``flops`` are multiply-accumulates per image, as in the papers. ``params`` counts
    the parameters that the stitch uses, with low-rank updates merged. ``latency``
    (milliseconds) and ``memory`` (peak bytes) refer to one forward of a batch and are
    None if not measured.
    """

    flops: int
    params: int
    latency: float | None = None
    memory: int | None = None


def cost_column(rows: Mapping[int, Any], name: str) -> dict[int, float]:
    """Return one cost by stitch id from rows with the fields of :class:`Cost`."""
    check(name in UNITS, 'cost', name, UNITS)
    column = {i: getattr(row, name) for i, row in rows.items()}
    if None in column.values():
        raise ValueError(
            f'the {name} of these stitches was not measured; measure it with '
            f'tools/analysis_tools/stitch_table.py CONFIG --{name} and give the '
            'costs.json that it writes (config key: test_cfg.costs; option: --costs)'
        )
    return column


@dataclass(frozen=True)
class Setup:
    """Device name, batch size and data type of measured latency and memory."""

    device: str
    batch: int
    dtype: str

    def __str__(self) -> str:
        return f'{self.device}, batch {self.batch}, {self.dtype}'


@dataclass(frozen=True)
class CostTable:
    """Costs of every stitch of a model at one input size.

    Args:
        costs: Cost by stitch id.
        input_size: Height and width in pixels at which the costs apply.
        space: Fingerprint of the stitching space; required in files.
        setup: Setup in which latency and memory were measured; None if they were not.
        scope: Parts of the model that costs cover, such as
            ``'backbone and neck alone'``; None for everything that prediction runs.
    """

    costs: Mapping[int, Cost]
    input_size: tuple[int, int]
    space: str | None = None
    setup: Setup | None = None
    scope: str | None = None

    def __getitem__(self, stitch_id: int) -> Cost:
        return self.costs[stitch_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self.costs)

    def __len__(self) -> int:
        return len(self.costs)

    def column(self, name: str) -> dict[int, float]:
        """Return one cost by stitch id."""
        return cost_column(self.costs, name)

    def measured(
        self,
        setup: Setup,
        latency: Mapping[int, float] | None = None,
        memory: Mapping[int, int] | None = None,
    ) -> CostTable:
        """Return the table with latency and memory measured in a setup."""
        found = [column or {} for column in (latency, memory)]
        costs = {i: Cost(*self[i][:2], *(c.get(i) for c in found)) for i in self}
        return replace(self, costs=costs, setup=setup)

    def check_space(self, space: StitchingSpace, name: str = 'the cost table') -> None:
        """Raise if the table's stitching space is known and differs."""
        if self.space not in (None, space.fingerprint):
            raise ValueError(f'{name} {OTHER_SPACE}')

    def check_same_model(self, other: CostTable, name: str = 'the cost table') -> None:
        """Raise if model, input size or scope differ from those of ``other``.

        Latency and memory may differ, because they depend on the device.
        """
        odd = sorted(set(self) ^ set(other))
        changed = [i for i in self if i not in odd and self[i][:2] != other[i][:2]]
        if self.input_size != other.input_size:
            size, wanted = ('{}x{}'.format(*t.input_size) for t in (self, other))
            why = f'holds for images of {size}, wanted are costs at {wanted}; measure '
            why += 'at that size (option: --shape)'
        elif None not in (self.space, other.space) and self.space != other.space:
            why = OTHER_SPACE
        elif self.scope != other.scope:
            scope, wanted = (t.scope or 'the whole model' for t in (self, other))
            why = f'holds costs of {scope}, wanted are costs of {wanted}'
        elif odd:
            why = f'and the model do not share stitches {odd}'
        elif changed:
            i, counts = changed[0], '{} FLOPs and {} parameters'
            there, here = (counts.format(*table[i]) for table in (self, other))
            why = f'is of another model: stitch {i} has {there} there, {here} here'
        else:
            return
        raise ValueError(f'{name} {why}')

    def to_dict(self) -> dict:
        """Return JSON-serialisable data for :meth:`from_dict`."""
        return dict(
            input_size=list(self.input_size),
            space=self.space,
            setup=None if self.setup is None else asdict(self.setup),
            **({} if self.scope is None else dict(scope=self.scope)),
            units={name: unit.meaning for name, unit in UNITS.items()},
            stitches=[dict(id=i, **c._asdict()) for i, c in self.costs.items()],
        )

    @classmethod
    def from_dict(cls, data: Mapping) -> CostTable:
        """Return a validated table from the output of :meth:`to_dict`."""
        rows = data['stitches']
        costs = {s['id']: Cost(*(s[name] for name in Cost._fields)) for s in rows}
        check_rows(rows, costs, ('latency', 'memory'))
        return cls(costs, *read_header(data))

    def save(self, path: str | os.PathLike, **more: Any) -> None:
        """Write the table to a JSON file, with ``more`` entries for human readers."""
        write_json(path, self.to_dict() | more)

    @classmethod
    def read(cls, path: str | os.PathLike) -> CostTable:
        """Read a table from a JSON file written by :meth:`save`."""
        made_by = 'tools/analysis_tools/stitch_table.py'
        return read_json(path, cls.from_dict, 'cost table', made_by)


def group_by_cost(costs: Mapping[int, float], step: float) -> list[tuple[int, ...]]:
    """Group stitches of similar cost, as in SN-Netv2, section 4.2.

    In ascending order of cost, a new group starts when a cost exceeds the first cost of
    the current group by more than ``step``. Groups and their ids ascend in cost.
    """
    right = is_number(step) and step > 0
    check(right, 'sampler.step', step, 'a positive number, in the unit of the cost')
    groups: list[tuple[int, ...]] = []
    for i in sorted(costs, key=lambda i: (costs[i], i)):
        if groups and costs[i] - costs[groups[-1][0]] <= step:
            groups[-1] += (i,)
        else:
            groups.append((i,))
    return groups


def default_step(costs: Mapping[int, float], num_groups: int = 13) -> float:
    """Return the widest step that makes about as many groups as the paper has.

    SN-Netv2 draws from 13 groups at 10 GFLOPs (DeiT3-S and L, 512x512 pixels).
    """
    width = max(costs.values()) - min(costs.values())
    steps = [width / n for n in range(1, 8 * num_groups)]
    return min(steps, key=lambda s: abs(len(group_by_cost(costs, s)) - num_groups))


def split_cost_range(
    costs: Mapping[int, float], num_groups: int
) -> list[tuple[int, ...]]:
    """Group stitches by equal parts of the range of costs, without empty groups."""
    check(is_whole(num_groups, 1), 'sampler.num_groups', num_groups, '1 or more')
    low, high = min(costs.values()), max(costs.values())
    width = (high - low) / num_groups or 1
    groups: dict[int, tuple[int, ...]] = {}
    for i in sorted(costs, key=lambda i: (costs[i], i)):
        part = min(int((costs[i] - low) / width), num_groups - 1)
        groups[part] = (*groups.get(part, ()), i)
    return list(groups.values())


def check_rows(
    rows: Collection[Mapping], costs: Mapping[int, Any], optional: Collection[str]
) -> None:
    """Raise if the ids or costs of rows that were read are invalid.

    ``costs`` have the fields of :class:`Cost`; the ``optional`` ones may be None.
    """
    ids = [row['id'] for row in rows]
    right = all(is_whole(i, 0) for i in ids) and 0 < len(costs) == len(ids)
    require(right, 'ids of stitches', ids, 'whole numbers, one or more, each once')
    for name in UNITS:
        whole, least = name != 'latency', int(name == 'flops')
        wanted = f'{"whole " * whole}numbers from {least}'
        for i, row in costs.items():
            value = getattr(row, name)
            right = is_whole(value) if whole else is_number(value)
            right = value is None and name in optional or right and value >= least
            require(right, f'{name} of stitch {i}', value, wanted)


def read_header(data: Mapping) -> tuple[tuple[int, int], str, Setup | None, str | None]:
    """Validate and return input size, space fingerprint, setup and scope of a file."""
    size, space, setup, scope = map(data.get, ('input_size', 'space', 'setup', 'scope'))
    right = isinstance(size, list | tuple) and len(size) == 2
    right = right and all(is_whole(x, 1) for x in size)
    require(right, 'input_size', size, 'height and width in pixels')
    wanted = 'the fingerprint of the stitching space, as it was written'
    require(isinstance(space, str), 'space', space, wanted)
    require(isinstance(scope, str | None), 'scope', scope, 'null, or parts in words')
    if setup is not None:
        setup = Setup(**setup)
        right = (type(setup.device), type(setup.dtype)) == (str, str)
        wanted = 'device and dtype as text, batch as a whole number'
        require(right and is_whole(setup.batch, 1), 'setup', data['setup'], wanted)
    return tuple(size), space, setup, scope
