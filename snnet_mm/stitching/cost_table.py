"""The cost table: what every stitch costs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from snnet_mm.utils import atomic_path, check, is_number, is_whole
from snnet_mm.utils.json_file import read_json, require

from .cost_units import UNITS

# FLOPs of stitches of one model differ by less; a slip of a hand by more.
MAX_SPREAD = 1000


class Cost(NamedTuple):
    """Cost of one stitch.

    ``flops`` are multiply-accumulates of one image, as in the papers; ``params`` are
    those that the stitch uses, with low-rank updates merged. ``latency`` are
    milliseconds and ``memory`` the bytes at the peak of one forward of a whole batch,
    see :class:`Setup`; both are None if they were not measured.
    """

    flops: int
    params: int
    latency: float | None = None
    memory: int | None = None


def check_costs(rows: Mapping[int, Any], optional: Collection[str]) -> None:
    """Refuse costs in a file that the stitches of a model cannot have.

    Args:
        rows: A :class:`Cost`, or what has its fields, by stitch id.
        optional: Costs that may be None.
    """
    for name in UNITS:
        column = {i: getattr(row, name) for i, row in rows.items()}
        if name in optional:
            column = {i: value for i, value in column.items() if value is not None}
        for i, value in column.items():
            number = is_number(value) if name == 'latency' else is_whole(value)
            wanted = 'a whole number' if name != 'latency' else 'a number'
            wanted += ' above 0' if name == 'flops' else ', 0 or more'
            right = number and value >= (name == 'flops')
            require(right, f'{name} of stitch {i}', value, wanted)
    flops = {i: row.flops for i, row in rows.items()}
    middle = median(flops.values())
    for i, value in flops.items():
        near = middle / MAX_SPREAD <= value <= middle * MAX_SPREAD
        wanted = f'within {MAX_SPREAD} times the median of the stitches, {middle:g}'
        require(near, f'flops of stitch {i}', value, wanted)


def cost_column(rows: Mapping[int, Any], name: str) -> dict[int, float]:
    """One cost by stitch id.

    Args:
        rows: A :class:`Cost`, or what has its fields, by stitch id.
        name: ``'flops'``, ``'params'``, ``'latency'`` or ``'memory'``.
    """
    check(name in UNITS, 'cost', name, UNITS)
    column = {i: getattr(row, name) for i, row in rows.items()}
    if None in column.values():
        raise ValueError(
            f'the {name} of these stitches was not measured; measure it with '
            f'tools/analysis_tools/stitch_table.py CONFIG --{name} and give the '
            'costs.json that it writes (config key: StitchSamplingHook.costs; option: '
            '--costs)'
        )
    return column


@dataclass(frozen=True)
class Setup:
    """Device that latency and memory were measured on.

    Args:
        device: The device in words, with the number of threads of a CPU.
        batch: Images in a batch.
        dtype: Data type of weights and images, such as ``'float32'``.
    """

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
        input_size: Height and width in pixels that the costs hold for.
        space: Fingerprint of the stitching space; None in tables made by hand.
        setup: What latency and memory were measured on, if they were.
        scope: The parts that costs are of, such as ``'backbone and neck alone'``;
            None for all that prediction runs.
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

    @property
    def fingerprint(self) -> str:
        """Differs between tables that differ in anything they hold."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def column(self, name: str) -> dict[int, float]:
        """One cost by stitch id; see :func:`cost_column`."""
        return cost_column(self.costs, name)

    def measured(
        self,
        setup: Setup,
        latency: Mapping[int, float] | None = None,
        memory: Mapping[int, int] | None = None,
    ) -> CostTable:
        """The table with what was measured on a device put in."""
        none: dict = dict.fromkeys(self)
        measured = latency or none, memory or none
        costs = {i: Cost(*self[i][:2], *(m[i] for m in measured)) for i in self}
        return replace(self, costs=costs, setup=setup)

    def check_same_model(self, other: CostTable, name: str = 'the cost table') -> None:
        """Refuse a table of another model or input than that of ``other``.

        Measured costs may differ: they belong to a device, not to the model.
        """
        odd = sorted(set(self) ^ set(other))
        changed = [i for i in self if i not in odd and self[i][:2] != other[i][:2]]
        if self.input_size != other.input_size:
            sizes = ['{}x{}'.format(*table.input_size) for table in (self, other)]
            why = 'holds for images of {}, wanted are costs at {}; '.format(*sizes)
            why += 'measure at that size (option: --shape)'
        elif None not in (self.space, other.space) and self.space != other.space:
            why = 'is of another stitching space than the model'
        elif self.scope != other.scope:
            scopes = [table.scope or 'the whole model' for table in (self, other)]
            why = 'holds costs of {}, wanted are those of {}'.format(*scopes)
        elif odd:
            why = f'and the model do not share stitches {odd}'
        elif changed:
            here, there = other[changed[0]], self[changed[0]]
            why = (
                f'is of another model: stitch {changed[0]} has {there.flops} FLOPs and '
                f'{there.params} parameters there, {here.flops} and {here.params} here'
            )
        else:
            return
        raise ValueError(f'{name} {why}')

    def to_dict(self) -> dict:
        """Plain data, for JSON; :meth:`from_dict` reads it back."""
        return dict(
            input_size=list(self.input_size),
            space=self.space,
            setup=None if self.setup is None else asdict(self.setup),
            # Left out where it says nothing: fingerprints stay what they were.
            **({} if self.scope is None else dict(scope=self.scope)),
            units={name: unit.meaning for name, unit in UNITS.items()},
            stitches=[dict(id=i, **c._asdict()) for i, c in self.costs.items()],
        )

    @classmethod
    def from_dict(cls, data: Mapping) -> CostTable:
        """A table from what :meth:`to_dict` gave."""
        costs: dict[int, Cost] = {}
        for row in data['stitches']:
            i = row['id']
            new = is_whole(i, 0) and i not in costs
            require(new, 'id of a stitch', i, 'whole numbers, each once')
            costs[i] = Cost(*(row[name] for name in Cost._fields))
        require(costs, 'stitches', data['stitches'], 'one or more')
        check_costs(costs, ('latency', 'memory'))
        return cls(costs, *read_header(data))

    def save(self, path: str | os.PathLike, **more: Any) -> None:
        """Write the table to a JSON file, with ``more`` for people that read it."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self.to_dict() | more, indent=1))

    @classmethod
    def read(cls, path: str | os.PathLike) -> CostTable:
        """The table in a JSON file that :meth:`save` wrote."""
        made_by = 'tools/analysis_tools/stitch_table.py'
        return read_json(path, cls.from_dict, 'cost table', made_by)


def read_header(
    data: Mapping,
) -> tuple[tuple[int, int], str, Setup | None, str | None]:
    """Input size, fingerprint of the space, setup and scope in data that was read."""
    size, space, setup = data['input_size'], data.get('space'), data.get('setup')
    right = isinstance(size, list | tuple) and len(size) == 2
    right = right and all(is_whole(x, 1) for x in size)
    require(right, 'input_size', size, 'height and width in pixels')
    wanted = 'the fingerprint of the stitching space, as it was written'
    require(isinstance(space, str), 'space', space, wanted)
    scope = data.get('scope')
    right = scope is None or isinstance(scope, str)
    require(right, 'scope', scope, 'null, or text that says what was counted')
    if setup is not None:
        setup = Setup(**setup)
        right = isinstance(setup.device, str) and isinstance(setup.dtype, str)
        wanted = 'device and dtype as text, batch as a whole number'
        require(right and is_whole(setup.batch, 1), 'setup', data['setup'], wanted)
    return tuple(size), space, setup, scope
