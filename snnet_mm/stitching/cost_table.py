"""The cost table: what every stitch costs."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

from snnet_mm.utils import is_number, is_whole
from snnet_mm.utils.json_file import read_json, require

UNITS = dict(
    flops='multiply-accumulates of one image',
    params='parameters',
    latency='milliseconds of one forward of the batch',
    memory='bytes at the peak of one forward of the batch',
)
HOW_TO_MEASURE = (
    'measure it with tools/analysis_tools/stitch_table.py CONFIG --{name} and give the '
    'costs.json that it writes (config key: StitchSamplingHook.costs; option: --costs)'
)


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

    def check(self, stitch_id: int) -> Cost:
        """The cost itself, as it was read for a stitch.

        Raises:
            ValueError: If one of its values can be none.
        """
        optional = ('latency', 'memory')
        for name, value in self._asdict().items():
            whole = name == 'latency' or is_whole(value)
            right = is_number(value) and value >= 0 and whole
            right = right or (value is None and name in optional)
            require(right, f'{name} of stitch {stitch_id}', value)
        return self


@dataclass(frozen=True)
class Setup:
    """What latency and memory were measured on.

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

    @classmethod
    def from_dict(cls, data: Mapping | None) -> Setup | None:
        """A setup from plain data, or None from None.

        Raises:
            ValueError: If an entry is of another form.
        """
        if data is None:
            return None
        setup = cls(**data)
        require(isinstance(setup.device, str), 'setup.device', setup.device)
        require(is_whole(setup.batch, 1), 'setup.batch', setup.batch)
        require(isinstance(setup.dtype, str), 'setup.dtype', setup.dtype)
        return setup


@dataclass(frozen=True)
class CostTable:
    """Costs of every stitch of a model at one input size.

    Args:
        costs: Cost by stitch id.
        input_size: Height and width in pixels that the costs hold for.
        space: Fingerprint of the stitching space; None in tables made by hand.
        setup: What latency and memory were measured on, if they were.
    """

    costs: Mapping[int, Cost]
    input_size: tuple[int, int]
    space: str | None = None
    setup: Setup | None = None

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
        """One cost by stitch id.

        Args:
            name: ``'flops'``, ``'params'``, ``'latency'`` or ``'memory'``.

        Raises:
            ValueError: If there is no such cost, or it was not measured.
        """
        if name not in Cost._fields:
            raise ValueError(f'cost {name!r} is unknown; allowed are {Cost._fields}')
        column = {i: getattr(cost, name) for i, cost in self.costs.items()}
        if None in column.values():
            how = HOW_TO_MEASURE.format(name=name)
            raise ValueError(f'the {name} of these stitches was not measured; {how}')
        return column

    def measured(
        self,
        setup: Setup,
        latency: Mapping[int, float] | None = None,
        memory: Mapping[int, int] | None = None,
    ) -> CostTable:
        """The table with what was measured on a device put in."""
        costs = {
            i: Cost(
                cost.flops,
                cost.params,
                None if latency is None else latency[i],
                None if memory is None else memory[i],
            )
            for i, cost in self.costs.items()
        }
        return replace(self, costs=costs, setup=setup)

    def check_same_model(self, other: CostTable, name: str = 'the cost table') -> None:
        """Refuse a table that is not of the same model and input as another one.

        Measured costs may differ: they belong to a device, not to the model.

        Args:
            other: The costs of the model at hand.
            name: What to call this table.

        Raises:
            ValueError: If stitching space, input size, FLOPs or parameters differ.
        """
        if self.input_size != other.input_size:
            raise ValueError(
                f'{name} holds for images of {_size(self)}, wanted are costs at '
                f'{_size(other)}; measure at that size (option: --shape)'
            )
        if None not in (self.space, other.space) and self.space != other.space:
            raise ValueError(f'{name} is of another stitching space than the model')
        if set(self) != set(other):
            odd = sorted(set(self) ^ set(other))
            raise ValueError(f'{name} and the model do not share stitches {odd}')
        for i in self:
            if self[i][:2] != other[i][:2]:
                raise ValueError(
                    f'{name} is of another model: stitch {i} has {self[i].flops} FLOPs '
                    f'and {self[i].params} parameters there, {other[i].flops} and '
                    f'{other[i].params} here'
                )

    def to_dict(self) -> dict:
        """Plain data, for JSON; :meth:`from_dict` reads it back."""
        return dict(
            input_size=list(self.input_size),
            space=self.space,
            setup=None if self.setup is None else asdict(self.setup),
            units=UNITS,
            stitches=[dict(id=i, **c._asdict()) for i, c in self.costs.items()],
        )

    @classmethod
    def from_dict(cls, data: Mapping) -> CostTable:
        """A table from what :meth:`to_dict` gave.

        Raises:
            ValueError: If an entry is of another form.
        """
        costs: dict[int, Cost] = {}
        for row in data['stitches']:
            i = row['id']
            require(is_whole(i, 0) and i not in costs, 'id of a stitch', i)
            costs[i] = Cost(*(row[name] for name in Cost._fields)).check(i)
        setup = Setup.from_dict(data['setup'])
        size, space = read_size(data['input_size']), data['space']
        require(space is None or isinstance(space, str), 'space', space)
        require(len(costs) > 0, 'stitches', data['stitches'])
        return cls(costs, size, space, setup)

    @classmethod
    def read(cls, path: str | os.PathLike) -> CostTable:
        """The table in a JSON file.

        Raises:
            ValueError: If there is no such file, or it is damaged or something else.
        """
        made_by = 'tools/analysis_tools/stitch_table.py'
        return read_json(path, cls.from_dict, 'cost table', made_by)


def read_size(size: Sequence[int]) -> tuple[int, int]:
    """Height and width of an ``input_size`` that was read.

    Raises:
        ValueError: If it is something else.
    """
    listed = isinstance(size, list | tuple) and len(size) == 2
    require(listed and all(is_whole(x, 1) for x in size), 'input_size', size)
    return tuple(size)


def _size(table: CostTable) -> str:
    return '{}x{}'.format(*table.input_size)
