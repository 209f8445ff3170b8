"""The cost table: FLOPs and parameters of every stitch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Cost(NamedTuple):
    """Cost of one stitch, as plain integers.

    ``flops`` are multiply-accumulates of one image, as in the papers; ``params`` are
    those that the stitch uses, with low-rank updates merged.
    """

    flops: int
    params: int


@dataclass(frozen=True)
class CostTable:
    """Costs of every stitch of a model at one input size.

    Args:
        costs: Cost by stitch id.
        input_size: Height and width in pixels that the FLOPs hold for.
    """

    costs: Mapping[int, Cost]
    input_size: tuple[int, int]

    def __getitem__(self, stitch_id: int) -> Cost:
        return self.costs[stitch_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self.costs)

    def __len__(self) -> int:
        return len(self.costs)

    def column(self, name: str) -> dict[int, int]:
        """One cost, ``'flops'`` or ``'params'``, by stitch id.

        Raises:
            ValueError: If there is no such cost.
        """
        if name not in Cost._fields:
            raise ValueError(f'cost {name!r} is unknown; allowed are {Cost._fields}')
        return {i: getattr(cost, name) for i, cost in self.costs.items()}
