"""The one-cycle policy for parameter groups with different learning rates."""

import math

from mmengine.optim import _ParamScheduler
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.optim.scheduler.momentum_scheduler import MomentumSchedulerMixin
from mmengine.registry import PARAM_SCHEDULERS

from snnet_mm.utils import check


class _OneCycle(_ParamScheduler):
    """Cosine annealing from start to turn to finish: the ``_levels`` of each group."""

    def __init__(
        self, optimizer, param_name: str, pct_start: float = 0.3, **kwargs
    ) -> None:
        self.num_steps = kwargs['end'] - kwargs.get('begin', 0)
        self.turn = pct_start * self.num_steps - 1
        inside = 0 < self.turn < self.num_steps - 1
        expected = f'a fraction whose peak is within the {self.num_steps} steps'
        check(inside, 'param_scheduler.pct_start', pct_start, expected)
        super().__init__(optimizer, param_name, **kwargs)

    def _get_value(self) -> list[float]:
        return [self._value_of(*self._levels(base)) for base in self.base_values]

    def _value_of(self, start: float, turn: float, finish: float) -> float:
        step = min(self.last_step, self.num_steps - 1)
        if step <= self.turn:
            a, b, share = start, turn, step / self.turn
        else:
            left = self.num_steps - 1 - self.turn
            a, b, share = turn, finish, (step - self.turn) / left
        return b + (a - b) / 2 * (1 + math.cos(math.pi * share))


@PARAM_SCHEDULERS.register_module()
class GroupOneCycleLR(LRSchedulerMixin, _OneCycle):
    """Learning rates of the one-cycle policy; each group peaks at its own rate.

    mmengine's ``OneCycleLR`` replaces the rates of all groups by ``eta_max``. Its state
    contains a function, which a weights-only load of the checkpoint would refuse.

    Args:
        div_factor: Ratio of the peak rate to the first rate.
        final_div_factor: Ratio of the first rate to the last rate.
        pct_start: Fraction of the steps up to the peak.
    """

    def __init__(
        self, optimizer, div_factor: float = 25, final_div_factor: float = 1e4, **kwargs
    ) -> None:
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer, **kwargs)

    def _levels(self, base: float) -> tuple[float, float, float]:
        first = base / self.div_factor
        return first, base, first / self.final_div_factor


@PARAM_SCHEDULERS.register_module()
class OneCycleMomentum(MomentumSchedulerMixin, _OneCycle):
    """One-cycle momentum (Adam's first beta): low where the rate is high."""

    def _levels(self, base: float) -> tuple[float, float, float]:
        return 0.95, 0.85, 0.95
